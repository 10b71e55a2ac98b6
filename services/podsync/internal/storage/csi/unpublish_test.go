package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
)

// TestAVolumeThatIsMountedStillIsNotUnpublishedWhateverItsDriverSays: it is asked again.
func TestAVolumeThatIsMountedStillIsNotUnpublishedWhateverItsDriverSays(t *testing.T) {
	lies := true
	b := newBench(t, func(c *fakecsi.Config) {
		unmount := c.Unmount
		c.Unmount = func(target string) error {
			if lies {
				return nil
			}
			return unmount(target)
		}
	}).register(t)
	if _, err := b.Setup(t.Context(), b.request()); err != nil {
		t.Fatal(err)
	}
	want := "driver csi.example.com says that it is unpublished, and " + filepath.Join(b.dir(), mountName) + " is mounted still"
	if err := b.Teardown(t.Context(), b.remains()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("said is %v, want %s", err, want)
	}
	lies = false
	if err := b.Teardown(t.Context(), b.remains()); err != nil {
		t.Fatal(err)
	}
	b.gone(t)
}

// TestAVolumeIsUnstagedAfterItsLastPodOfWhichOnlyDamageIsLeft, though that pod has not asked for
// it since a restart, and nobody has looked at it since it was found to have it.
func TestAVolumeIsUnstagedAfterItsLastPodOfWhichOnlyDamageIsLeft(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	b.Volumes = b.restarted(t)
	b.register(t)
	<-b.inUse.known
	b.settled(t)
	if err := os.WriteFile(filepath.Join(b.pvDir("uid-1"), volumeDataFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.end(t, "uid-1")
	b.nothing(t)
	b.called(t, "NodeStageVolume", "NodePublishVolume", "NodeUnstageVolume")
}

// TestAVolumeThatSomebodyHasTakenAwayByHandIsNotAskedFor: its driver is gone for good, and that is
// what people are told to do.
func TestAVolumeThatSomebodyHasTakenAwayByHandIsNotAskedFor(t *testing.T) {
	for name, of := range map[string]struct {
		setUp func(*bench, *testing.T, types.UID) error
		end   func(*bench, *testing.T, types.UID)
	}{
		"a file system": {(*bench).setUp, (*bench).end},
		"a device":      {(*bench).mapDeviceOf, (*bench).unmap},
	} {
		t.Run(name, func(t *testing.T) {
			b := newStaging(t, nil)
			b.fault("NodeUnstageVolume", func(context.Context) error { return status.Error(codes.Internal, "broken") })
			if err := of.setUp(b, t, "uid-1"); err != nil {
				t.Fatal(err)
			}
			of.end(b, t, "uid-1")
			b.Deregister(b.plugin)
			_ = b.mounts.Unmount(filepath.Join(b.staging(), globalMount))
			if err := errors.Join(os.RemoveAll(b.staging()), os.RemoveAll(b.devices(""))); err != nil {
				t.Fatal(err)
			}
			b.settleSoon(volumeID{driverOf, handleOf})
			b.nothing(t)
		})
	}
}
