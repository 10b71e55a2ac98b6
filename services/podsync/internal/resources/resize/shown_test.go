package resize

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func amount(cpu, memory string) v1.ResourceList {
	l := v1.ResourceList{}
	if cpu != "" {
		l[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func TestAStatusSaysWhatAPodWasAllocated(t *testing.T) {
	asked := v1.ResourceRequirements{Requests: amount("4", "40Mi"), Limits: amount("8", "80Mi")}
	inEffect := &v1.ResourceRequirements{Requests: amount("1", "10Mi"), Limits: amount("2", "20Mi")}
	pending := []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue}}
	for name, tc := range map[string]struct {
		status v1.PodStatus
		want   Amounts
		ok     bool
	}{
		"a resize that waits": {
			v1.PodStatus{Conditions: pending, ContainerStatuses: []v1.ContainerStatus{{Name: "a", AllocatedResources: amount("1", "10Mi"), Resources: inEffect}}},
			Amounts{Requests: amount("1", "10Mi"), Limits: amount("2", "20Mi")}, true,
		},
		"a resize of the limits alone that waits": {
			v1.PodStatus{Conditions: pending, ContainerStatuses: []v1.ContainerStatus{{Name: "a", AllocatedResources: amount("4", "40Mi"), Resources: inEffect}}},
			Amounts{Requests: amount("4", "40Mi"), Limits: amount("2", "20Mi")}, true,
		},
		"one that nobody has looked at yet": {
			v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a", AllocatedResources: amount("1", "10Mi"), Resources: inEffect}}},
			Amounts{Requests: amount("1", "10Mi"), Limits: amount("2", "20Mi")}, true,
		},
		"one that is being carried out": {
			v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a", AllocatedResources: amount("4", "40Mi"), Resources: inEffect}}},
			Amounts{Requests: amount("4", "40Mi"), Limits: amount("8", "80Mi")}, true,
		},
		"a status without the container": {v1.PodStatus{}, Amounts{}, false},
		"a status of an agent that does not tell": {
			v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a"}}}, Amounts{}, false,
		},
		"a request that came later": {
			v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a", AllocatedResources: amount("4", "")}}}, Amounts{}, false,
		},
	} {
		pod := &v1.Pod{Status: tc.status, Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "prepare", Resources: asked}},
			Containers:     []v1.Container{{Name: "a", Resources: asked}, {Name: "b"}},
		}}
		got, ok := Shown(pod)
		if ok != tc.ok {
			t.Errorf("%s: told %v, want %v", name, ok, tc.ok)
			continue
		}
		if ok && (!got.Containers["a"].equal(tc.want) || !got.Containers["prepare"].equal(amounts(&asked)) || !got.Containers["b"].equal(Amounts{})) {
			t.Errorf("%s: %+v, want %+v", name, got.Containers, tc.want)
		}
	}
	idle := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}}
	if a, ok := Shown(idle); ok {
		t.Errorf("a pod that asks for nothing: told %+v", a)
	}
}

func TestOfAResizeUnderWayTheLimitsThatAStatusShowsMayBeTheOnesBeforeIt(t *testing.T) {
	under := []v1.PodCondition{{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue}}
	for name, tc := range map[string]struct {
		asked     v1.ResourceRequirements
		allocated v1.ResourceList
		inEffect  v1.ResourceList
		want      v1.ResourceList
	}{
		"growing, both alike":   {v1.ResourceRequirements{Requests: amount("9", "9Mi"), Limits: amount("9", "9Mi")}, amount("2", "2Mi"), amount("1", "1Mi"), amount("2", "2Mi")},
		"shrinking, both alike": {v1.ResourceRequirements{Requests: amount("9", "9Mi"), Limits: amount("9", "9Mi")}, amount("2", "2Mi"), amount("4", "4Mi"), amount("2", "2Mi")},
		"growing beyond":        {v1.ResourceRequirements{Requests: amount("8", "8Mi"), Limits: amount("9", "9Mi")}, amount("2", "2Mi"), amount("1", "1Mi"), amount("2", "2Mi")},
		"shrinking":             {v1.ResourceRequirements{Requests: amount("8", "8Mi"), Limits: amount("9", "9Mi")}, amount("2", "2Mi"), amount("4", "4Mi"), amount("4", "4Mi")},
		"no limit of cpu":       {v1.ResourceRequirements{Requests: amount("9", "9Mi"), Limits: amount("", "9Mi")}, amount("2", "2Mi"), amount("", "1Mi"), amount("", "2Mi")},
	} {
		pod := &v1.Pod{
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Resources: tc.asked}}},
			Status: v1.PodStatus{Conditions: under, ContainerStatuses: []v1.ContainerStatus{{
				Name: "a", AllocatedResources: tc.allocated, Resources: &v1.ResourceRequirements{Requests: tc.allocated, Limits: tc.inEffect},
			}}},
		}
		before := tc.inEffect.DeepCopy()
		got, ok := Shown(pod)
		if want := (Amounts{Requests: tc.allocated, Limits: tc.want}); !ok || !got.Containers["a"].equal(want) {
			t.Errorf("%s: told %v, %+v, want %+v", name, ok, got.Containers["a"], want)
		}
		if !same(pod.Status.ContainerStatuses[0].Resources.Limits, before) {
			t.Errorf("%s: the status itself was changed", name)
		}
	}
}

func TestAStatusSaysWhatAPodAsAWholeWasAllocated(t *testing.T) {
	pod := &v1.Pod{
		Spec: v1.PodSpec{
			Resources:  &v1.ResourceRequirements{Requests: amount("4", ""), Limits: amount("4", "")},
			Containers: []v1.Container{{Name: "a"}},
		},
		Status: v1.PodStatus{AllocatedResources: amount("2", ""), Resources: &v1.ResourceRequirements{Limits: amount("2", "")}},
	}
	got, ok := Shown(pod)
	if want := (Amounts{Requests: amount("2", ""), Limits: amount("2", "")}); !ok || got.Pod == nil || !got.Pod.equal(want) {
		t.Errorf("%v, %+v, want %+v", ok, got.Pod, want)
	}
	pod.Status = v1.PodStatus{}
	if got, ok := Shown(pod); ok {
		t.Errorf("without a word of it: %+v", got)
	}
}
