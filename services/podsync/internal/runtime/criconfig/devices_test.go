package criconfig

import (
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestVolumesThatAreDevicesAreGivenToContainersAsSuch(t *testing.T) {
	f := newFixture(t)
	f.volumes = map[string]string{"device d": "/pods/u/volumeDevices/d", "device r": "/pods/u/volumeDevices/r", "plain": "/v"}
	p := pod(v1.Container{VolumeDevices: []v1.VolumeDevice{{Name: "d", DevicePath: "/dev/xvda"}, {Name: "r", DevicePath: "/dev/xvdb"}}})
	of := func(name string, readOnly bool) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly}}}
	}
	p.Spec.Volumes = []v1.Volume{of("d", false), of("r", true), of("plain", false)}
	got, err := f.container(t, p)
	if err != nil {
		t.Fatal(err)
	}
	want := []*runtimeapi.Device{
		{HostPath: "/pods/u/volumeDevices/d", ContainerPath: "/dev/xvda", Permissions: "mrw"},
		{HostPath: "/pods/u/volumeDevices/r", ContainerPath: "/dev/xvdb", Permissions: "r"},
	}
	if len(got.Devices) != 2 || !proto.Equal(got.Devices[0], want[0]) || !proto.Equal(got.Devices[1], want[1]) {
		t.Errorf("devices %v, want %v", got.Devices, want)
	}
	for d, said := range map[v1.VolumeDevice]string{
		{Name: "d", DevicePath: "dev"}:        "error DevicePath `dev` must be an absolute path",
		{Name: "plain", DevicePath: "/dev/x"}: `cannot find volume "plain" to pass into container "c"`,
	} {
		p.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{d}
		if _, err := f.container(t, p); err == nil || err.Error() != said {
			t.Errorf("said %v, want %s", err, said)
		}
	}
}
