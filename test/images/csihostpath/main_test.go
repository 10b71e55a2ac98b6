package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// noted is a host that only notes.
type noted struct{ did []string }

func (n *noted) note(what string) error { n.did = append(n.did, what); return nil }

func (n *noted) attach(file string) (string, error) {
	return "/dev/loop7", n.note("attach " + filepath.Base(file))
}
func (n *noted) detach(device string) error { return n.note("detach " + device) }
func (n *noted) resize(device string) error { return n.note("resize " + device) }
func (n *noted) bind(from, target string, flags uintptr) error {
	return n.note(fmt.Sprintf("bind %s %s %#x", filepath.Base(from), filepath.Base(target), flags))
}
func (n *noted) unmount(target string) error { return n.note("unmount " + filepath.Base(target)) }

func newDriver(t *testing.T) (*driver, *noted) {
	t.Helper()
	n := &noted{}
	return &driver{
		name: "csi.test", node: "node", modifies: true, mutable: []string{"speed"}, host: n,
		volumes: volumes{dir: t.TempDir()}, snapshots: volumes{dir: t.TempDir()},
	}, n
}

var (
	files  = &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}
	device = &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}
)

func create(t *testing.T, d *driver, name, from string, bytes int64, as *csi.VolumeCapability) error {
	t.Helper()
	r := &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}, VolumeCapabilities: []*csi.VolumeCapability{as}}
	if from != "" {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: from}}}
	}
	_, err := d.CreateVolume(t.Context(), r)
	return err
}

func want(t *testing.T, what string, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%s: got %v, want %v", what, err, code)
	}
}

func TestACloneBeginsWithWhatItsSourceHolds(t *testing.T) {
	d, _ := newDriver(t)
	want(t, "make one", create(t, d, "one", "", 2<<20, files), codes.OK)
	write(t, d, "one", "kept")
	want(t, "make it again", create(t, d, "one", "", 2<<20, files), codes.OK)
	want(t, "make it larger", create(t, d, "one", "", 3<<20, files), codes.AlreadyExists)
	want(t, "clone it smaller", create(t, d, "two", "one", 1<<20, files), codes.InvalidArgument)
	want(t, "clone it as a device", create(t, d, "two", "one", 2<<20, device), codes.InvalidArgument)
	want(t, "clone it", create(t, d, "two", "one", 2<<20, files), codes.OK)
	if got := read(t, d, "two"); got != "kept" {
		t.Errorf("got %q", got)
	}
}

func TestAVolumeGoesThroughItsLifeInOrder(t *testing.T) {
	d, host := newDriver(t)
	ctx, at, pod := t.Context(), t.TempDir(), filepath.Join(t.TempDir(), "pod")
	want(t, "make it", create(t, d, "one", "", 1<<20, device), codes.OK)
	publish := &csi.NodePublishVolumeRequest{VolumeId: "one", StagingTargetPath: at, TargetPath: pod, VolumeCapability: device}
	steps := []struct {
		what string
		do   func(context.Context) error
		code codes.Code
	}{
		{"publish before it is staged", func(ctx context.Context) error { _, err := d.NodePublishVolume(ctx, publish); return err }, codes.FailedPrecondition},
		{"stage as files", func(ctx context.Context) error { return stage(ctx, d, at, files) }, codes.InvalidArgument},
		{"stage", func(ctx context.Context) error { return stage(ctx, d, at, device) }, codes.OK},
		{"stage again", func(ctx context.Context) error { return stage(ctx, d, at, device) }, codes.OK},
		{"stage elsewhere", func(ctx context.Context) error { return stage(ctx, d, at+"/", device) }, codes.FailedPrecondition},
		{"publish", func(ctx context.Context) error { _, err := d.NodePublishVolume(ctx, publish); return err }, codes.OK},
		{"unstage while it is published", func(ctx context.Context) error { return unstage(ctx, d, at) }, codes.FailedPrecondition},
		{"grow", func(ctx context.Context) error {
			_, err := d.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: "one", CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 20}})
			return err
		}, codes.OK},
		{"grow on the node", func(ctx context.Context) error {
			_, err := d.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: "one", VolumePath: pod, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 20}})
			return err
		}, codes.OK},
		{"unpublish", func(ctx context.Context) error { return unpublish(ctx, d, "one", pod) }, codes.OK},
		{"delete while it is staged", func(ctx context.Context) error { return remove(ctx, d) }, codes.FailedPrecondition},
		{"unstage", func(ctx context.Context) error { return unstage(ctx, d, at) }, codes.OK},
		{"delete", func(ctx context.Context) error { return remove(ctx, d) }, codes.OK},
		{"delete again", func(ctx context.Context) error { return remove(ctx, d) }, codes.OK},
	}
	for _, s := range steps {
		want(t, s.what, s.do(ctx), s.code)
	}
	if got := []string{"attach one.volume", "bind loop7 pod 0x0", "resize /dev/loop7", "unmount pod", "detach /dev/loop7"}; !slices.Equal(host.did, got) {
		t.Errorf("it did %q, want %q", host.did, got)
	}
}

func stage(ctx context.Context, d *driver, at string, as *csi.VolumeCapability) error {
	_, err := d.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "one", StagingTargetPath: at, VolumeCapability: as})
	return err
}

func unstage(ctx context.Context, d *driver, at string) error {
	_, err := d.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "one", StagingTargetPath: at})
	return err
}

func unpublish(ctx context.Context, d *driver, id, target string) error {
	_, err := d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target})
	return err
}

func remove(ctx context.Context, d *driver) error {
	_, err := d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "one"})
	return err
}

func TestAnEphemeralVolumeIsThereWhileItIsPublished(t *testing.T) {
	d, _ := newDriver(t)
	pod := filepath.Join(t.TempDir(), "pod")
	_, err := d.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: "csi-1", TargetPath: pod, VolumeCapability: files, VolumeContext: map[string]string{"csi.storage.k8s.io/ephemeral": "true"},
	})
	want(t, "publish", err, codes.OK)
	if _, err := os.Stat(d.volumes.content("csi-1")); err != nil {
		t.Error(err)
	}
	want(t, "unpublish", unpublish(t.Context(), d, "csi-1", pod), codes.OK)
	if left, err := os.ReadDir(d.volumes.dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestOnlyWhatIsSaidToBeMutableIsTaken(t *testing.T) {
	d, _ := newDriver(t)
	want(t, "make one", create(t, d, "one", "", 1<<20, files), codes.OK)
	for name, code := range map[string]codes.Code{"speed": codes.OK, "colour": codes.InvalidArgument} {
		_, err := d.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: "one", MutableParameters: map[string]string{name: "x"}})
		want(t, name, err, code)
	}
}

func TestAVolumeIsMountedWithTheOptionsOfItsClass(t *testing.T) {
	d, host := newDriver(t)
	at, pod := t.TempDir(), filepath.Join(t.TempDir(), "pod")
	want(t, "make one", create(t, d, "one", "", 1<<20, files), codes.OK)
	want(t, "stage it", stage(t.Context(), d, at, files), codes.OK)
	for option, code := range map[string]codes.Code{"noatime": codes.OK, "data=journal": codes.InvalidArgument} {
		_, err := d.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
			VolumeId: "one", StagingTargetPath: at, TargetPath: pod, Readonly: true,
			VolumeCapability: &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{
				Mount: &csi.VolumeCapability_MountVolume{MountFlags: []string{option}},
			}},
		})
		want(t, option, err, code)
	}
	if got := []string{"bind one.volume pod 0x401"}; !slices.Equal(host.did, got) {
		t.Errorf("it did %q, want %q", host.did, got)
	}
}
