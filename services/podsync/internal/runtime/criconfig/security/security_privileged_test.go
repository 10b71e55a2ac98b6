package security

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestASandboxIsPrivilegedForAnyOfItsContainers(t *testing.T) {
	with := func(privileged *bool) *v1.SecurityContext { return &v1.SecurityContext{Privileged: privileged} }
	for name, change := range map[string]func(*v1.PodSpec){
		"init":    func(s *v1.PodSpec) { s.InitContainers = []v1.Container{{SecurityContext: with(ptr.To(true))}} },
		"regular": func(s *v1.PodSpec) { s.Containers[0].SecurityContext = with(ptr.To(true)) },
		"debug": func(s *v1.PodSpec) {
			s.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{SecurityContext: with(ptr.To(true))}}}
		},
		"":       func(s *v1.PodSpec) { s.Containers[0].SecurityContext = with(nil) },
		"not it": func(s *v1.PodSpec) { s.Containers[0].SecurityContext = with(ptr.To(false)) },
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
		change(&pod.Spec)
		if got, want := Sandbox(pod).Privileged, name != "" && name != "not it"; got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
