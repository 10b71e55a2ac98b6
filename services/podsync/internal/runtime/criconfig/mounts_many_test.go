package criconfig

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/steps"
)

func TestOfManyVolumesEachIsLookedUpOnceForAContainer(t *testing.T) {
	steps.Grow(t, func(n int) {
		f := newFixture(t)
		p := pod(v1.Container{})
		c := &p.Spec.Containers[0]
		for i := range n {
			mounted, used := fmt.Sprint("mounted", i), fmt.Sprint("used", i)
			f.volumes[mounted], f.volumes["device "+used] = "/v/"+mounted, "/dev/"+used
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: mounted, MountPath: "/" + mounted})
			c.VolumeDevices = append(c.VolumeDevices, v1.VolumeDevice{Name: used, DevicePath: "/dev/" + used})
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: mounted}, v1.Volume{Name: used})
		}
		if got, err := f.container(t, p); err != nil || len(got.Mounts) < n || len(got.Devices) != n {
			t.Fatalf("%v, %v", got, err)
		}
	})
}
