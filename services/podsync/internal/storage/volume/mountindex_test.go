package volume

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestAMountIsLookedAtForTheVolumesThatItLiesInOnly: a pod of some hundred kilobytes that
// mounts ten thousand volumes took a minute of all processors, at each change of a
// ConfigMap that it names again.
func TestAMountIsLookedAtForTheVolumesThatItLiesInOnly(t *testing.T) {
	const n = 10000
	pod := podWith()
	c := &pod.Spec.Containers[0]
	for i := range n {
		name := fmt.Sprintf("v%d", i)
		pod.Spec.Volumes = append(pod.Spec.Volumes, configMapVolume(name, "m"))
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "v1", MountPath: "/v0/a"}, v1.VolumeMount{Name: "v2", MountPath: "/v0-a"})
	x := indexMounts(pod)
	looked := 0
	for i := range n {
		name := fmt.Sprintf("v%d", i)
		for _, k := range x.whole[name] {
			looked += len(x.containers[k].beneath(name))
		}
	}
	if want := n + 3; looked != want { // /v0/a is looked at for v0, too
		t.Errorf("%d looks at %d mounts, want %d", looked, len(c.VolumeMounts), want)
	}
	points, err := x.nestedIn("v0", func(string) bool { return false })
	if err != nil || !slices.Equal(points, []string{"a"}) {
		t.Errorf("in v0: %q, %v", points, err)
	}
}

// TestTheIndexFindsWhatLookingAtAllMountsFinds.
func TestTheIndexFindsWhatLookingAtAllMountsFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
	names := []string{"a", "b", "a-b", "c"}
	volumes := []string{"outer", "inner", "other", "host"}
	for round := range 20000 {
		pod := podWith(configMapVolume("outer", "m"), configMapVolume("inner", "m"), configMapVolume("other", "m"),
			v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/x", Type: ptr.To(v1.HostPathFile)}}})
		var mounts []v1.VolumeMount
		for range random.IntN(9) {
			m := v1.VolumeMount{Name: volumes[random.IntN(len(volumes))], MountPath: "/"}
			for range random.IntN(4) {
				m.MountPath += names[random.IntN(len(names))] + "/"
			}
			if random.IntN(4) == 0 {
				m.SubPath = "s"
			}
			mounts = append(mounts, m)
		}
		pod.Spec.Containers[0].VolumeMounts = mounts
		isFile := func(point string) bool { return len(point)%3 == round%3 }
		x := indexMounts(pod)
		for _, volume := range volumes[:3] {
			want := nestedOf(withoutOverlays(hostFiles(pod), mounts, volume, isFile), volume)
			slices.Sort(want)
			got, err := x.nestedIn(volume, isFile)
			if want = slices.Compact(want); err != nil || !slices.Equal(got, want) {
				t.Fatalf("%+v: in %s %q, %v; want %q", mounts, volume, got, err, want)
			}
		}
	}
}
