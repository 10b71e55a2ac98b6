package nodepage

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	probesv1 "github.com/polylet/polylet/api/gen/polylet/probes/v1"
)

// podInfo is one pod without its spec: no environment, no arguments.
type podInfo struct {
	UID        string          `json:"uid"`
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	Phase      string          `json:"phase"`
	Reason     string          `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"`
	Ready      bool            `json:"ready"`
	IP         string          `json:"ip,omitempty"`
	QOS        string          `json:"qos,omitempty"`
	Created    *time.Time      `json:"created,omitempty"`
	Containers []containerInfo `json:"containers"`
	Conditions []condition     `json:"conditions"`
	Waits      []wait          `json:"waits,omitempty"`
}

type containerInfo struct {
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

type wait struct {
	Kind   string     `json:"kind"`
	Object string     `json:"object,omitempty"`
	Reason string     `json:"reason"`
	Advice string     `json:"advice,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	Retry  *time.Time `json:"retry,omitempty"`
}

// podsOf lists the pods by namespace and name.
func podsOf(list *podsapi.ListPodsResponse, waits *podsyncv1.ListWaitsResponse) []podInfo {
	waiting := map[string][]wait{}
	for _, p := range waits.GetPods() {
		waiting[p.GetPod().GetUid()] = waitsOf(p.GetWaits())
	}
	out := []podInfo{}
	for _, raw := range list.GetPods() {
		var pod v1.Pod
		if pod.Unmarshal(raw) != nil {
			continue // podsync's bug; the others are worth showing
		}
		info := podOf(&pod)
		info.Waits = waiting[info.UID]
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b podInfo) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

func waitsOf(waits []*podsyncv1.Wait) []wait {
	var out []wait
	for _, w := range waits {
		out = append(out, wait{w.GetKind(), w.GetObject(), reasonOf(w), w.GetAdvice(), stamp(w.GetSince()), stamp(w.GetRetryTime())})
	}
	return out
}

func podOf(pod *v1.Pod) podInfo {
	st := &pod.Status
	out := podInfo{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Phase: string(st.Phase), Reason: st.Reason, Message: st.Message,
		IP: st.PodIP, QOS: string(st.QOSClass), Conditions: []condition{}, Containers: []containerInfo{},
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
		out.Conditions = append(out.Conditions, condition{string(c.Type), string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time})
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

func containerOf(c *v1.Container, kind string, statuses []v1.ContainerStatus) containerInfo {
	out := containerInfo{
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

// podPage is what is shown of one pod beside the overview.
type podPage struct {
	UID       string      `json:"uid"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Phase     string      `json:"phase"`
	Reason    string      `json:"reason,omitempty"`
	Message   string      `json:"message,omitempty"`
	Gone      *time.Time  `json:"gone,omitempty"`
	Waits     []wait      `json:"waits"`
	Timeline  []entry     `json:"timeline"`
	Dropped   uint32      `json:"dropped,omitempty"`
	Probes    []probeInfo `json:"probes"`
	// ProbesProblem says why there are no probes.
	ProbesProblem string `json:"probesProblem,omitempty"`
}

type entry struct {
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

type probeInfo struct {
	Container string     `json:"container"`
	Type      string     `json:"type"`
	Handler   string     `json:"handler"`
	Period    int32      `json:"period"`
	Outcome   string     `json:"outcome"`
	LastOK    bool       `json:"lastOk"`
	Last      *time.Time `json:"last,omitempty"`
	Streak    int32      `json:"streak"`
}

func entryOf(e *podsyncv1.TimelineEntry) entry {
	failed, detail := saidOf(e)
	return entry{
		Time: e.GetTime().AsTime(), First: stamp(e.GetFirstTime()), Step: e.GetStep(), Object: e.GetObject(), Seconds: e.GetDuration().AsDuration().Seconds(),
		Error: failed, Detail: detail, Count: e.GetCount(), Running: e.GetRunning(),
	}
}

func (p *page) askPod(ctx context.Context, ref *podsyncv1.PodRef) (*podPage, error) {
	why, err := p.podsync.ExplainPod(ctx, &podsyncv1.ExplainPodRequest{Pod: ref})
	if err != nil {
		return nil, err
	}
	out := &podPage{
		UID: why.GetPod().GetUid(), Namespace: why.GetPod().GetNamespace(), Name: why.GetPod().GetName(), Phase: why.GetPhase(),
		Reason: why.GetReason(), Message: why.GetMessage(), Gone: stamp(why.GetGoneTime()), Waits: waitsOf(why.GetWaits()),
		Timeline: []entry{}, Dropped: why.GetDroppedEntries(), Probes: []probeInfo{},
	}
	for _, e := range why.GetTimeline() {
		out.Timeline = append(out.Timeline, entryOf(e))
	}
	probes, err := p.probes.ListProbes(ctx, &probesv1.ListProbesRequest{Namespace: ref.GetNamespace(), Name: ref.GetName()})
	if err != nil {
		out.ProbesProblem = "probes does not answer: " + err.Error()
	}
	for _, s := range probes.GetProbes() {
		out.Probes = append(out.Probes, probeOf(s))
	}
	return out, nil
}

// probeOf leaves out what the last attempt said: it is the container's own
// output, or names the URL or the command. `polylet probes` shows it.
func probeOf(s *probesv1.ProbeState) probeInfo {
	t := s.GetTarget()
	return probeInfo{
		Container: t.GetKey().GetContainer(), Type: strings.ToLower(strings.TrimPrefix(t.GetKey().GetType().String(), "PROBE_TYPE_")),
		Handler: handlerOf(t), Period: t.GetPeriodSeconds(),
		Outcome: strings.ToLower(strings.TrimPrefix(s.GetOutcome().String(), "PROBE_OUTCOME_")),
		LastOK:  s.GetLastAttemptOk(), Last: stamp(s.GetLastAttemptTime()), Streak: s.GetStreak(),
	}
}
