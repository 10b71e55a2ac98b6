package podutil

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestAVolumeIsFoundByItsName(t *testing.T) {
	image := &v1.ImageVolumeSource{Reference: "registry.test/data:v1"}
	pod := &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{Image: "registry.test/app:v1"}},
		Volumes:    []v1.Volume{{Name: "scratch"}, {Name: "data", VolumeSource: v1.VolumeSource{Image: image}}},
	}}
	for name, want := range map[string]struct {
		volume *v1.Volume
		image  *v1.ImageVolumeSource
	}{
		"scratch": {&pod.Spec.Volumes[0], nil}, "data": {&pod.Spec.Volumes[1], image}, "other": {},
	} {
		if v, i := Volume(pod, name), ImageVolume(pod, name); v != want.volume || i != want.image {
			t.Errorf("%s: %v, %v", name, v, i)
		}
	}
	if Volume(nil, "data") != nil {
		t.Error("there is one without a pod")
	}
	if got := Images(pod); !slices.Equal(got, []string{"registry.test/app:v1", "registry.test/data:v1"}) {
		t.Errorf("images: %q", got)
	}
}
