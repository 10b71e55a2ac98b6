package podutil

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestAContainerIsFoundInItsListByItsName(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers:      []v1.Container{{Name: "first"}, {Name: "beside", RestartPolicy: &always}},
		Containers:          []v1.Container{{Name: "main"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", TTY: true}}},
	}}
	for name, tc := range map[string]struct {
		want    *v1.Container
		kind    Kind
		sidecar bool
	}{
		"first":  {&pod.Spec.InitContainers[0], Init, false},
		"beside": {&pod.Spec.InitContainers[1], Init, true},
		"main":   {&pod.Spec.Containers[0], Regular, false},
		"other":  {nil, None, false},
	} {
		if c, kind := Container(pod, name); c != tc.want || kind != tc.kind || c != nil && Sidecar(c) != tc.sidecar {
			t.Errorf("%s: %v, %v", name, c, kind)
		}
	}
	if c, kind := Container(pod, "debug"); c == nil || kind != Ephemeral || !c.TTY {
		t.Errorf("the ephemeral container: %v, %v", c, kind)
	}
	if c, kind := Container(nil, "main"); c != nil || kind != None {
		t.Errorf("without a pod: %v, %v", c, kind)
	}
	var names []string
	for _, c := range Containers(pod) {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, []string{"first", "beside", "main", "debug"}) {
		t.Errorf("in the order %v", names)
	}
}
