package admission

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestTheShortWayToWhatAPodAsksForSaysWhatTheLongOneDoes(t *testing.T) {
	asks := func(cpu, memory string) v1.Container {
		list := v1.ResourceList{}
		for name, q := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if q != "" {
				list[name] = resource.MustParse(q)
			}
		}
		return v1.Container{Resources: v1.ResourceRequirements{Requests: list}}
	}
	always := v1.ContainerRestartPolicyAlways
	sidecar := asks("300m", "10Mi")
	sidecar.RestartPolicy = &always
	want := map[v1.ResourceName]int64{v1.ResourcePods: 1, v1.ResourceCPU: 1, v1.ResourceMemory: 1, "example.com/gpu": 1}
	for name, spec := range map[string]v1.PodSpec{
		"nothing":            {Containers: []v1.Container{{}}},
		"one container":      {Containers: []v1.Container{asks("250m", "64Mi")}},
		"several":            {Containers: []v1.Container{asks("250m", ""), asks("", "1Gi"), asks("100u", "1")}},
		"parts of a core":    {Containers: []v1.Container{asks("1500u", ""), asks("1500u", "")}},
		"an init container":  {InitContainers: []v1.Container{asks("2", "1Gi")}, Containers: []v1.Container{asks("1", "2Gi")}},
		"a sidecar":          {InitContainers: []v1.Container{sidecar}, Containers: []v1.Container{asks("1", "2Gi")}},
		"overhead":           {Overhead: v1.ResourceList{v1.ResourceCPU: resource.MustParse("10m")}, Containers: []v1.Container{asks("1", "")}},
		"resources of a pod": {Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}}, Containers: []v1.Container{asks("1", "1")}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1.Pod{Spec: spec}
			used := map[v1.ResourceName]int64{}
			addUse(used, want, p)
			all := requests(p)
			for resource := range want {
				if used[resource] != all[resource] {
					t.Errorf("%s: %d, want %d", resource, used[resource], all[resource])
				}
			}
		})
	}
}
