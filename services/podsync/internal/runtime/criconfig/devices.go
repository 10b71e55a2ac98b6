package criconfig

import (
	"fmt"
	"path"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// devices are the container's volumes that it uses as devices.
func (b *Builder) devices(r Request, c *v1.Container) ([]*runtimeapi.Device, error) {
	var list []*runtimeapi.Device
	volumes := podutil.VolumesByName(r.Pod)
	for _, d := range c.VolumeDevices {
		if !path.IsAbs(d.DevicePath) {
			return nil, fmt.Errorf("error DevicePath `%s` must be an absolute path", d.DevicePath)
		}
		host, ok := b.deps.Volumes.Device(r.Pod.UID, d.Name)
		source := volumes.Find(d.Name)
		if !ok || source == nil {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", d.Name, c.Name)
		}
		may := "mrw"
		if claim := source.PersistentVolumeClaim; claim != nil && claim.ReadOnly {
			may = "r"
		}
		list = append(list, &runtimeapi.Device{HostPath: host, ContainerPath: d.DevicePath, Permissions: may})
	}
	return list, nil
}
