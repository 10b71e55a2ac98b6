package resources

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// What a pod asks for beside its containers is added up of all of them, once.
func TestTheScoreOfASidecarDoesNotAddUpThePodForEachContainer(t *testing.T) {
	allocations := func(n int) float64 {
		always := v1.ContainerRestartPolicyAlways
		pod := memoryPod("1Mi", "2Mi", false)
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: memoryPod("2Gi", "", false).Spec.Containers[0].Resources.Requests}
		for i := range n {
			c := pod.Spec.Containers[0]
			c.Name = fmt.Sprint("c", i)
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
		side := v1.Container{Name: "side", RestartPolicy: &always}
		pod.Spec.InitContainers = []v1.Container{side}
		return testing.AllocsPerRun(10, func() { OOMScoreAdj(pod, &side, 8<<30) })
	}
	if few, many := allocations(10), allocations(100); many > 2*few {
		t.Errorf("%v allocations with 10 containers, %v with 100", few, many)
	}
}
