package criconfig

import (
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func TestAPodWithItsOwnUsersHasThemEverywhere(t *testing.T) {
	f := newFixture(t)
	f.volumes["v"], f.volumes["img"] = "/vol/v", ""
	p := pod(v1.Container{TerminationMessagePath: "/dev/termination-log", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}, {Name: "img", MountPath: "/img"}}})
	p.Spec.Volumes = []v1.Volume{
		{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "img", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "tools:1"}}},
	}
	p.Spec.HostUsers = ptr.To(false)
	sandbox, _, err := f.builder.Sandbox(t.Context(), p, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.container(t, p)
	if err != nil {
		t.Fatal(err)
	}
	ids := []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}
	want := &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
	for what, users := range map[string]*runtimeapi.UserNamespace{
		"sandbox":   sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions,
		"container": got.Linux.SecurityContext.NamespaceOptions.UsernsOptions,
	} {
		if !proto.Equal(users, want) {
			t.Errorf("the %s has %v, want %v", what, users, want)
		}
	}
	for _, m := range got.Mounts {
		if len(m.UidMappings) != 1 || !proto.Equal(m.UidMappings[0], ids[0]) || len(m.GidMappings) != 1 {
			t.Errorf("mount %v is not idmapped", m)
		}
	}
	p.Spec.HostUsers = ptr.To(true)
	if got, err = f.container(t, p); err != nil || got.Linux.SecurityContext.NamespaceOptions.UsernsOptions != nil || got.Mounts[0].UidMappings != nil {
		t.Errorf("with the host's users: %v, %v", got, err)
	}
}
