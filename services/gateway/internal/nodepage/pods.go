package nodepage

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is one pod without its spec: no environment, no arguments.
type Pod struct {
	UID        string      `json:"uid"`
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Phase      string      `json:"phase"`
	Reason     string      `json:"reason,omitempty"`
	Message    string      `json:"message,omitempty"`
	Ready      bool        `json:"ready"`
	IP         string      `json:"ip,omitempty"`
	QOS        string      `json:"qos,omitempty"`
	Created    *time.Time  `json:"created,omitempty"`
	Containers []Container `json:"containers"`
	Conditions []Condition `json:"conditions"`
	Waits      []Wait      `json:"waits,omitempty"`
}

// Container is one of a pod.
type Container struct {
	Name     string     `json:"name"`
	Kind     string     `json:"kind,omitempty"`
	Image    string     `json:"image"`
	State    string     `json:"state"`
	Reason   string     `json:"reason,omitempty"`
	Ready    bool       `json:"ready"`
	Restarts int32      `json:"restarts"`
	Since    *time.Time `json:"since,omitempty"`
	// CPULimit in cores and MemoryLimit in bytes; zero when there is none.
	CPULimit    float64 `json:"cpuLimit,omitempty"`
	MemoryLimit int64   `json:"memoryLimit,omitempty"`
}

// Wait is what a pod waits for.
type Wait struct {
	Kind   string     `json:"kind"`
	Object string     `json:"object,omitempty"`
	Reason string     `json:"reason"`
	Advice string     `json:"advice,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	Retry  *time.Time `json:"retry,omitempty"`
}

// podsOf lists the pods by namespace and name.
func podsOf(list []v1.Pod, waits map[types.UID][]Wait) []Pod {
	out := make([]Pod, len(list))
	for i := range list {
		out[i] = podOf(&list[i])
		out[i].Waits = waits[list[i].UID]
	}
	slices.SortFunc(out, func(a, b Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

func podOf(pod *v1.Pod) Pod {
	st := &pod.Status
	out := Pod{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Phase: string(st.Phase), Reason: st.Reason, Message: st.Message,
		IP: st.PodIP, QOS: string(st.QOSClass), Conditions: []Condition{}, Containers: []Container{},
	}
	switch {
	case pod.DeletionTimestamp != nil:
		out.Phase = "Terminating"
	case out.Phase == "":
		out.Phase = string(v1.PodPending)
	}
	if at := pod.CreationTimestamp.Time; !at.IsZero() {
		out.Created = &at
	} else if st.StartTime != nil {
		out.Created = &st.StartTime.Time
	}
	for _, c := range st.Conditions {
		out.Conditions = append(out.Conditions, Condition{string(c.Type), string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time})
		if c.Type == v1.PodReady {
			out.Ready = c.Status == v1.ConditionTrue
		}
	}
	for i := range pod.Spec.InitContainers {
		kind := "init"
		if p := pod.Spec.InitContainers[i].RestartPolicy; p != nil && *p == v1.ContainerRestartPolicyAlways {
			kind = "sidecar"
		}
		out.Containers = append(out.Containers, containerOf(&pod.Spec.InitContainers[i], kind, st.InitContainerStatuses))
	}
	for i := range pod.Spec.Containers {
		out.Containers = append(out.Containers, containerOf(&pod.Spec.Containers[i], "", st.ContainerStatuses))
	}
	for i := range pod.Spec.EphemeralContainers {
		c := v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		out.Containers = append(out.Containers, containerOf(&c, "debug", st.EphemeralContainerStatuses))
	}
	return out
}

func containerOf(c *v1.Container, kind string, statuses []v1.ContainerStatus) Container {
	out := Container{
		Name: c.Name, Kind: kind, Image: c.Image, State: "waiting",
		CPULimit: c.Resources.Limits.Cpu().AsApproximateFloat64(), MemoryLimit: c.Resources.Limits.Memory().Value(),
	}
	for i := range statuses {
		s := &statuses[i]
		if s.Name != c.Name {
			continue
		}
		out.Ready, out.Restarts = s.Ready, s.RestartCount
		switch {
		case s.State.Running != nil:
			out.State, out.Since = "running", &s.State.Running.StartedAt.Time
		case s.State.Terminated != nil:
			out.State, out.Reason, out.Since = "ended", s.State.Terminated.Reason, &s.State.Terminated.FinishedAt.Time
		case s.State.Waiting != nil:
			out.Reason = s.State.Waiting.Reason
		}
	}
	return out
}

// PodPage is what is shown of one pod beside the overview.
type PodPage struct {
	UID       string     `json:"uid"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Phase     string     `json:"phase"`
	Reason    string     `json:"reason,omitempty"`
	Message   string     `json:"message,omitempty"`
	Gone      *time.Time `json:"gone,omitempty"`
	Waits     []Wait     `json:"waits"`
	Timeline  []Entry    `json:"timeline"`
	Dropped   uint32     `json:"dropped,omitempty"`
	Probes    []Probe    `json:"probes"`
	// ProbesProblem says why there are no probes.
	ProbesProblem string `json:"probesProblem,omitempty"`
}

// Entry is a step of a pod's timeline.
type Entry struct {
	Time    time.Time  `json:"time"`
	First   *time.Time `json:"first,omitempty"`
	Step    string     `json:"step"`
	Object  string     `json:"object,omitempty"`
	Seconds float64    `json:"seconds,omitempty"`
	Error   string     `json:"error,omitempty"`
	Detail  string     `json:"detail,omitempty"`
	Count   uint32     `json:"count,omitempty"`
	Running bool       `json:"running,omitempty"`
}

// Probe is one of a container, without a command's arguments and without headers.
type Probe struct {
	Container string     `json:"container"`
	Type      string     `json:"type"`
	Handler   string     `json:"handler"`
	Period    int32      `json:"period"`
	Outcome   string     `json:"outcome"`
	LastOK    bool       `json:"lastOk"`
	Last      *time.Time `json:"last,omitempty"`
	Streak    int32      `json:"streak"`
}

func (p *page) askPod(ctx context.Context, namespace, name, uid string) (*PodPage, error) {
	out, err := p.cfg.Peers.Explain(ctx, namespace, name, uid)
	if err != nil {
		return nil, err
	}
	probes, err := p.cfg.Peers.Probes(ctx, namespace, name)
	if err != nil {
		out.ProbesProblem = "probes does not answer: " + err.Error()
	}
	out.Probes = append([]Probe{}, probes...) // never null
	return out, nil
}
