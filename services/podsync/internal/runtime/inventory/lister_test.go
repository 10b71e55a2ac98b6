package inventory

import (
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The images of a pod whose containers nobody can list are in use all the same.
func TestOfAPodThatIsTooLargeToBeListedTheSpecNamesTheImages(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Image: "init"}}, Containers: []v1.Container{{Image: "app"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Image: "debug"}}},
		Volumes:             []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data"}}}, {Name: "e"}},
	}}
	known := func(uid types.UID) *v1.Pod {
		if uid == "large" {
			return pod
		}
		return nil
	}
	tooLarge := map[types.UID]error{"large": errors.New("too large"), "unknown": errors.New("too large")}
	var names []string
	for _, c := range standIns(tooLarge, known) {
		names = append(names, c.GetImage().GetImage())
	}
	slices.Sort(names)
	if want := []string{"app", "data", "debug", "init"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}
