package admission

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// sized is a pod of a class with requests: "" is none.
func sized(uid string, class v1.PodQOSClass, cpu, memory string) *v1.Pod {
	p := pod(uid)
	r := &p.Spec.Containers[0].Resources
	r.Requests = v1.ResourceList{}
	if cpu != "" {
		r.Requests[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		r.Requests[v1.ResourceMemory] = resource.MustParse(memory)
	}
	p.Status.QOSClass = class
	return p
}

func priority(p *v1.Pod, n int32) *v1.Pod {
	p.Spec.Priority = &n
	return p
}

func TestThePodsThatMakeRoomAreTheCheapest(t *testing.T) {
	const effort, burst, guaranteed = v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed
	critical := func(p *v1.Pod) *v1.Pod { return priority(p, 2_000_000_000) }
	for _, tc := range []struct {
		name      string
		preemptor *v1.Pod
		static    bool
		pods      []*v1.Pod
		want      []string
		err       string
	}{
		{"one of two that is enough", sized("p", guaranteed, "1", ""), true,
			[]*v1.Pod{sized("a", burst, "1", ""), sized("b", burst, "1500m", "")}, []string{"b"}, ""},
		{"of two that are enough the smaller", sized("p", guaranteed, "500m", ""), true,
			[]*v1.Pod{sized("a", burst, "1500m", "10"), sized("b", burst, "500m", "20")}, []string{"a"}, ""},
		{"burstable before guaranteed", sized("p", guaranteed, "1", ""), true,
			[]*v1.Pod{sized("a", guaranteed, "1", ""), sized("b", burst, "1", "")}, []string{"b"}, ""},
		{"guaranteed only for what the rest does not give", sized("p", guaranteed, "2", ""), true,
			[]*v1.Pod{sized("a", guaranteed, "1", ""), sized("b", burst, "500m", ""), sized("c", guaranteed, "500m", "")}, []string{"b", "a", "c"}, ""},
		{"best effort for the number of pods", sized("p", guaranteed, "", ""), true,
			[]*v1.Pod{sized("a", guaranteed, "100m", ""), sized("b", burst, "100m", ""), sized("c", effort, "", "")}, []string{"c"}, ""},
		{"the nearest first for two resources", sized("p", guaranteed, "1500m", "500"), true,
			[]*v1.Pod{sized("a", burst, "1", "100"), sized("b", burst, "100m", "500"), sized("c", burst, "900m", "400")}, []string{"c", "a"}, ""},
		{"no critical pod for another", critical(sized("p", guaranteed, "2", "")), false,
			[]*v1.Pod{critical(sized("a", burst, "1", "")), critical(sized("b", burst, "1", ""))}, nil,
			"no set of running pods found to reclaim resources: [(res: cpu, q: 2000), ]"},
		{"a less critical pod for a more critical one", priority(sized("p", guaranteed, "1500m", ""), 2_000_000_000+1000), false,
			[]*v1.Pod{critical(sized("a", burst, "1", ""))}, []string{"a"}, ""},
		{"not all together are enough", sized("p", guaranteed, "2", "2000"), true,
			[]*v1.Pod{sized("a", burst, "1", "400")}, nil, "no set of running pods found to reclaim resources: [(res: memory, q: 1000), ]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{Pod: tc.preemptor, Static: tc.static, Active: tc.pods, Node: node()}
			if tc.name != "best effort for the number of pods" {
				in.Node.Status.Allocatable[v1.ResourcePods] = resource.MustParse("10")
			}
			if tc.name == "not all together are enough" {
				in.Pod.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("2000")
			}
			got := Check(in)
			if tc.err != "" {
				want := "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: " + tc.err
				if got.Decision != podstate.Rejected || got.Reason != "UnexpectedAdmissionError" || got.Message != want {
					t.Fatalf("got %+v, want %s", got, want)
				}
				return
			}
			var names []string
			for _, v := range got.Preempt {
				names = append(names, v.Pod.Name)
				if v.Stop.Reason != "Preempting" || v.Stop.Message != "Preempted in order to admit critical pod" || v.Stop.GraceSeconds != nil || !v.Stop.ByContainers ||
					v.Stop.Condition.Type != v1.DisruptionTarget || v.Stop.Condition.Reason != "TerminationByKubelet" ||
					v.Stop.Condition.Message != "Pod was preempted by Kubelet to accommodate a critical pod." {
					t.Errorf("it ends with %+v", v.Stop)
				}
			}
			if got.Decision != podstate.AdmissionPending || got.Reason != "Preempting" || !slices.Equal(names, tc.want) {
				t.Fatalf("got %+v with %v, want %v", got.Admission, names, tc.want)
			}
		})
	}
}

func TestNobodyElseIsStoppedWhileEnoughAreLeaving(t *testing.T) {
	in := Input{Pod: sized("p", v1.PodQOSGuaranteed, "1", ""), Static: true, Node: node(), Leaving: map[types.UID]time.Duration{"a": 0},
		Active: []*v1.Pod{sized("a", v1.PodQOSBurstable, "1", ""), sized("b", v1.PodQOSBurstable, "1", "")}}
	if got := Check(in); got.Decision != podstate.AdmissionPending || got.Reason != "Preempting" || len(got.Preempt) > 0 {
		t.Fatalf("got %+v", got)
	}
	in.Pod = sized("p", v1.PodQOSGuaranteed, "1500m", "")
	if got := Check(in); len(got.Preempt) != 1 || got.Preempt[0].Pod.Name != "b" || got.Preempt[0].Signal != v1.ResourceCPU {
		t.Fatalf("got %+v", got)
	}
}

func TestAnOrdinaryPodAndOneThatFitsNowhereStopNobody(t *testing.T) {
	full := []*v1.Pod{sized("a", v1.PodQOSBestEffort, "", ""), sized("b", v1.PodQOSBurstable, "2", "")}
	if got := Check(Input{Pod: sized("p", v1.PodQOSGuaranteed, "1", ""), Active: full, Node: node()}); got.Decision != podstate.Rejected || got.Reason != "OutOfcpu" {
		t.Errorf("an ordinary pod: %+v", got)
	}
	wrong := sized("p", v1.PodQOSGuaranteed, "1", "")
	wrong.Spec.NodeName = "other"
	if got := Check(Input{Pod: wrong, Static: true, Active: full, Node: node()}); got.Decision != podstate.Rejected || got.Reason != "NodeName" {
		t.Errorf("a critical pod of another node: %+v", got)
	}
}

// What does not end, because its runtime or the kernel does not let it, comes free
// for nobody.
func TestAVictimThatDoesNotEndIsNotWaitedForForEver(t *testing.T) {
	grace := func(p *v1.Pod, seconds int64) *v1.Pod {
		p.Spec.TerminationGracePeriodSeconds = &seconds
		return p
	}
	stuck := grace(sized("stuck", v1.PodQOSBurstable, "1", ""), 10)
	for _, tc := range []struct {
		name     string
		stopped  time.Duration
		other    *v1.Pod
		decision podstate.Decision
		victims  int
		message  string
	}{
		{"within its time", 39 * time.Second, sized("b", v1.PodQOSBurstable, "1", ""), podstate.AdmissionPending, 0,
			"the pod waits for others to end, which are being stopped, and takes their place: default/stuck"},
		{"another goes", 40 * time.Second, sized("b", v1.PodQOSBurstable, "1", ""), podstate.AdmissionPending, 1,
			"the pod waits for 1 others to end, which make room for it: Node didn't have enough resource: cpu, requested: 1000, used: 2000, capacity: 2000; stopped long ago and not ended: default/stuck"},
		{"no other may", 40 * time.Second, priority(sized("b", v1.PodQOSBurstable, "1", ""), 2_000_000_000), podstate.Rejected, 0,
			"Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: " +
				"no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]; stopped long ago and not ended: default/stuck"},
	} {
		got := Check(Input{
			Pod: priority(sized("p", v1.PodQOSGuaranteed, "1", ""), 2_000_000_000), Node: node(), Active: []*v1.Pod{stuck, tc.other},
			Leaving: map[types.UID]time.Duration{"stuck": tc.stopped},
		})
		if got.Decision != tc.decision || len(got.Preempt) != tc.victims || got.Message != tc.message {
			t.Errorf("%s: %+v, want %s", tc.name, got, tc.message)
		}
	}
	long := grace(sized("a", v1.PodQOSBurstable, "1", ""), 3600)
	if endless(long, 89*time.Minute) || !endless(long, 90*time.Minute) {
		t.Error("a pod with an hour to end may take half of that more")
	}
	long.DeletionGracePeriodSeconds = new(int64)
	if !endless(long, 30*time.Second) {
		t.Error("the grace period of its deletion does not count")
	}
}
