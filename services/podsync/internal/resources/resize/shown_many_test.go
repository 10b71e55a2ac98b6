package resize

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/steps"
)

func TestAStatusOfManyContainersSaysOfEachByOneLookWhatItWasAllocated(t *testing.T) {
	steps.Grow(t, func(n int) {
		pod := &v1.Pod{}
		for i := range n {
			asked := v1.ResourceRequirements{Requests: amount("1", "10Mi")}
			c := v1.Container{Name: fmt.Sprint("c", i), Resources: asked}
			pod.Spec.Containers = append(pod.Spec.Containers, c)
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{Name: c.Name, AllocatedResources: asked.Requests})
			c.Name = fmt.Sprint("i", i)
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		if a, told := Shown(pod); !told || len(a.Containers) != 2*n {
			t.Fatalf("told %v of %d containers", told, len(a.Containers))
		}
	})
}
