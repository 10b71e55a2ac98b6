package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// As a kubelet 1.36 shows them, of a container that waits and of one that runs.
func TestTheMountsOfAContainerAreShown(t *testing.T) {
	disabled, possible, enabled := v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled
	pod := testPod(v1.RestartPolicyAlways, "a")
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "v", MountPath: "/rw"}, {Name: "v", MountPath: "/ro", ReadOnly: true}, {Name: "v", MountPath: "/dis", ReadOnly: true, RecursiveReadOnly: &disabled},
		{Name: "v", MountPath: "/if", ReadOnly: true, RecursiveReadOnly: &possible}, {Name: "v", MountPath: "/on", ReadOnly: true, RecursiveReadOnly: &enabled},
	}
	for what, c := range map[string]struct {
		can  bool // what the runtime's usual handler can do
		runs []string
		made bool
		want v1.RecursiveReadOnlyMode // of /if
	}{
		"waits, and it could be":      {can: true, want: enabled},
		"waits, and it could not be":  {want: disabled},
		"runs with it":                {made: true, runs: []string{"/if", "/on"}, want: enabled},
		"runs without, though it can": {can: true, made: true, runs: []string{"/on"}, want: disabled},
	} {
		w := newWorld(pod)
		w.s.Node.RecursiveReadOnly = c.can
		if c.made {
			w.s.Observed.Containers = []podstate.Container{{ID: "1", Name: "a", State: podstate.StateRunning, StartedAt: start, RecursiveReadOnly: c.runs}}
		}
		got := Plan(w.s).Status.ContainerStatuses[0].VolumeMounts
		if len(got) != 5 {
			t.Fatalf("%s: %+v", what, got)
		}
		for i, mode := range []*v1.RecursiveReadOnlyMode{nil, &disabled, &disabled, &c.want, &enabled} {
			m, want := got[i], pod.Spec.Containers[0].VolumeMounts[i]
			if m.Name != "v" || m.MountPath != want.MountPath || m.ReadOnly != want.ReadOnly || (m.RecursiveReadOnly == nil) != (mode == nil) || mode != nil && *m.RecursiveReadOnly != *mode {
				t.Errorf("%s: %+v", what, m)
			}
		}
	}
}

func TestWhatWasToldOfAContainerThatTheRuntimeHasLostStays(t *testing.T) {
	possible := v1.RecursiveReadOnlyIfPossible
	pod := testPod(v1.RestartPolicyNever, "a", "b")
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/if", ReadOnly: true, RecursiveReadOnly: &possible}}
	w := newWorld(pod)
	w.exits["a"] = []int32{3}
	w.settle(0)
	for i := range w.s.Observed.Containers {
		c := &w.s.Observed.Containers[i]
		c.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 1000}}
		c.RecursiveReadOnly = []string{"/if"}
	}
	w.settle(time.Minute)
	before := w.out.Status.ContainerStatuses[0]
	if before.State.Terminated == nil || before.User == nil || *before.VolumeMounts[0].RecursiveReadOnly != v1.RecursiveReadOnlyEnabled {
		t.Fatalf("status %+v", before)
	}
	w.drop(w.newest("a").ID)
	w.settle(time.Minute)
	if after := w.out.Status.ContainerStatuses[0]; !equality.Semantic.DeepEqual(before, after) {
		t.Errorf("it is told as\n%+v, was\n%+v", after, before)
	}
}

// As a kubelet 1.36 shows it: limits of some containers are the pod's too.
func TestAPodWithoutResourcesOfItsOwnShowsWhatItsContainersComeTo(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	pod := testPod(v1.RestartPolicyAlways, "a", "b")
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("50m")}
	pod.Spec.Containers[1].Resources = v1.ResourceRequirements{Requests: list("200m", "100Mi"), Limits: list("200m", "100Mi")}
	st := Plan(newWorld(pod).s).Status
	if st.Resources == nil || st.Resources.Requests.Cpu().String() != "250m" || st.Resources.Requests.Memory().String() != "100Mi" ||
		st.Resources.Limits.Cpu().String() != "200m" || st.Resources.Limits.Memory().String() != "100Mi" || len(st.Resources.Limits) != 2 {
		t.Errorf("%+v", st.Resources)
	}
	if st := Plan(newWorld(testPod(v1.RestartPolicyAlways, "a")).s).Status; st.Resources == nil || len(st.Resources.Limits)+len(st.Resources.Requests) != 0 {
		t.Errorf("with no requests: %+v", st.Resources)
	}
}
