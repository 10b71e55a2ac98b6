package fakecsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// directory is a Driver whose mounts are files in their targets.
func directory() *Driver {
	mark := func(target string) string { return filepath.Join(target, "mounted") }
	return New(Config{
		Name: "csi.example", NodeID: "n",
		Mount:   func(volume, target string, _ bool) error { return os.WriteFile(mark(target), []byte(volume), 0o600) },
		Unmount: func(target string) error { return os.Remove(mark(target)) },
		Mounted: func(target string) (bool, error) {
			_, err := os.Stat(mark(target))
			if errors.Is(err, fs.ErrNotExist) {
				return false, nil
			}
			return err == nil, err
		},
	})
}

func TestAVolumeIsThereFromItsPublishingToItsEnd(t *testing.T) {
	d, target := directory(), filepath.Join(t.TempDir(), "mount")
	publish := &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: target, VolumeCapability: &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}}
	for range 2 { // idempotent, as the spec wants it
		if _, err := d.NodePublishVolume(t.Context(), publish); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(target, "mounted")); string(text) != "v" || err != nil {
		t.Errorf("mounted is %q, %v", text, err)
	}
	for range 2 {
		if _, err := d.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: target}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target is left: %v", err)
	}
	if calls := d.Calls(); len(calls) != 4 || len(d.Published()) != 2 {
		t.Errorf("calls %v, %d publishings", calls, len(d.Published()))
	}
}

// TestADriverMountsWithTheFlagsThatItIsToldOf: what it stages, and what it publishes of that.
func TestADriverMountsWithTheFlagsThatItIsToldOf(t *testing.T) {
	d, dir := directory(), t.TempDir()
	var flagged []string
	d.cfg.Can = []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
	d.cfg.Flagged = func(volume, staged, target string, _ bool, flags []string) error {
		flagged = append(flagged, fmt.Sprint(volume, " ", filepath.Base(staged), " ", filepath.Base(target), " ", flags))
		return d.cfg.Mount(volume, target, false)
	}
	as := &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{MountFlags: []string{"noatime", "context=x"}}}}
	if _, err := d.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: dir, VolumeCapability: as}); err != nil {
		t.Fatal(err)
	}
	publish := &csi.NodePublishVolumeRequest{VolumeId: "v", StagingTargetPath: dir, TargetPath: filepath.Join(t.TempDir(), "mount"), VolumeCapability: as}
	if _, err := d.NodePublishVolume(t.Context(), publish); err != nil {
		t.Fatal(err)
	}
	staged := filepath.Base(dir)
	if want := []string{"v . " + staged + " [noatime context=x]", "v " + staged + " mount [noatime context=x]"}; !slices.Equal(flagged, want) {
		t.Errorf("mounted %q, want %q", flagged, want)
	}
}

func TestADriverDoesOneThingWithAVolumeAtATime(t *testing.T) {
	d, target := directory(), filepath.Join(t.TempDir(), "mount")
	end := func() error {
		_, err := d.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: target})
		return err
	}
	d.cfg.Fault = func(_ context.Context, at string) error {
		if at != "NodePublishVolume" {
			return nil
		}
		if err := end(); status.Code(err) != codes.Aborted || !d.Busy("v") || d.Busy("another") {
			t.Errorf("during another call: %v, busy %v", err, d.Busy("v"))
		}
		return nil
	}
	if _, err := d.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: target, VolumeCapability: &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}}); err != nil || d.Busy("v") {
		t.Errorf("%v, busy after it: %v", err, d.Busy("v"))
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestACallerIsHeldToTheSpec(t *testing.T) {
	d := directory()
	for name, r := range map[string]*csi.NodePublishVolumeRequest{
		"no volume": {TargetPath: "/x"}, "no path": {VolumeId: "v"}, "no file system": {VolumeId: "v", TargetPath: "/x"},
	} {
		if _, err := d.NodePublishVolume(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}
