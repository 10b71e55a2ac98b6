package fakecsi

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestTheControllersVolumesAreOnTheDiskAndDeletedOnceDetached: one that is made, attached
// and grown is still so for the next process, and staged only as it is attached.
func TestTheControllersVolumesAreOnTheDiskAndDeletedOnceDetached(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	next := func() *controller {
		d := directory()
		d.cfg.Volumes = dir
		return &controller{Driver: d, dir: dir}
	}
	if _, err := next().CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 5}}); err != nil {
		t.Fatal(err)
	}
	stage := &csi.NodeStageVolumeRequest{VolumeId: "v", PublishContext: attachedAs}
	if err := next().attached(stage); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("staged before it is attached: %v", err)
	}
	if _, err := next().ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: "n"}); err != nil {
		t.Fatal(err)
	}
	if err := next().attached(stage); err != nil {
		t.Errorf("staged once it is attached: %v", err)
	}
	grown, err := next().ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 7}})
	if err != nil || grown.GetCapacityBytes() != 7 {
		t.Errorf("grown to %v, %v", grown, err)
	}
	if _, err := next().DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "v"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("deleted while it is attached: %v", err)
	}
	if _, err := next().ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: "v"}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // idempotent, as the spec wants it
		if _, err := next().DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "v"}); err != nil {
			t.Error(err)
		}
	}
}
