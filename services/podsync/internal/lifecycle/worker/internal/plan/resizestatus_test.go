package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestWhatAPodWasAllocatedIncludesItsOverhead(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	one := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: one, Limits: one}
	pod.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}
	w := newWorld(pod)
	w.settle(time.Minute)
	if st := w.out.Status; st.AllocatedResources.Cpu().String() != "1250m" || st.Resources.Requests.Cpu().String() != "1250m" || st.Resources.Limits.Cpu().String() != "1250m" {
		t.Errorf("allocated %v, in effect %v", st.AllocatedResources, st.Resources)
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
