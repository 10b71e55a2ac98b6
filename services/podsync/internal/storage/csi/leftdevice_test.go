package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
)

// publishes is what a driver does to publish a device.
func (b *bench) publishes() error { return os.WriteFile(b.devices("publish/pv/uid-1"), nil, 0o600) }

func TestADeviceThatIsPublishedAfterItsEndIsTakenBackBeforeItIsUnstaged(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	ended := false
	b.fault("NodeUnstageVolume", func(context.Context) error {
		if ended {
			return nil
		}
		ended = true // what it was asked for before, and said is undone
		return errors.Join(b.publishes(), errors.New("an operation with the volume is under way"))
	})
	b.unmap(t, "uid-1")
	b.nothing(t)
	b.called(t, "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
}

// A kubelet says which pod has a device once it is published, and may end before.
func TestADeviceThatAnotherAgentHasPublishedForAPodThatIsGoneIsTakenBack(t *testing.T) {
	for name, shown := range map[string]bool{"published": false, "and shown": true} {
		t.Run(name, func(t *testing.T) {
			b := newStaging(t, nil)
			<-b.inUse.known // else this one finds it, too
			err := errors.Join(os.MkdirAll(b.devices("pv/dev"), 0o750), os.MkdirAll(b.devices("publish/pv"), 0o750), os.MkdirAll(b.devices("staging/pv"), 0o750),
				writeData(b.devices("pv/data"), blockData{"a", driverOf, "", "n1", "pv", handleOf}))
			if shown {
				err = errors.Join(err, os.WriteFile(b.devices("pv/dev/uid-1"), nil, 0o600), b.mounts.Bind("x", b.devices("pv/dev/uid-1")))
			}
			if err = errors.Join(err, b.publishes()); err != nil {
				t.Fatal(err)
			}
			b.Volumes = b.restarted(t)
			b.register(t)
			b.nothing(t)
			b.called(t, "NodeUnpublishVolume", "NodeUnstageVolume")
		})
	}
}

func TestAVolumeWithADeviceOfNoPodIsNotUnstagedWithoutItsDriver(t *testing.T) {
	b := newStaging(t, func(c *fakecsi.Config) { c.Can = nil })
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	b.unmap(t, "uid-1")
	b.nothing(t)
	if err := errors.Join(os.MkdirAll(b.devices("publish/pv"), 0o750), writeData(b.devices("pv/data"), blockData{"a", driverOf, "", "n1", "pv", handleOf}), b.publishes()); err != nil {
		t.Fatal(err)
	}
	b.Volumes = b.restarted(t)
	err := b.settle(t.Context(), volumeID{driverOf, handleOf})
	if err == nil || !strings.Contains(err.Error(), "publish/pv/uid-1 is published for pod uid-1, which does not have it: driver name csi.example.com not found") {
		t.Error(err)
	}
	b.register(t)
	b.nothing(t)
}

func TestWhatAPodThatHasDevicesIsShownIsLeftAlone(t *testing.T) {
	b := newStaging(t, nil)
	other := filepath.Join(filepath.Dir(b.link("uid-1")), "publish")
	err := errors.Join(os.MkdirAll(b.devices("publish/pv"), 0o750), writeData(b.devices("pv/data"), blockData{"a", driverOf, "", "n1", "pv", handleOf}),
		os.MkdirAll(filepath.Dir(other), 0o750), os.Symlink("/nowhere", other), b.publishes())
	if err != nil {
		t.Fatal(err)
	}
	err = b.settle(t.Context(), volumeID{driverOf, handleOf})
	if err == nil || !strings.Contains(err.Error(), "which has devices still") || !isThere(b.devices("publish/pv/uid-1")) {
		t.Error(err)
	}
	b.called(t)
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if err := b.settle(t.Context(), volumeID{driverOf, handleOf}); err != nil {
		t.Fatal(err)
	}
	b.nothing(t)
}

// Nothing else would say that it is to be removed.
func TestAPodHasADeviceUntilAllOfItIsRemoved(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	inTheWay := filepath.Join(b.devices("publish/pv/uid-1"), "x")
	b.fault("NodeUnpublishVolume done", func(context.Context) error { return os.MkdirAll(inTheWay, 0o750) })
	if err := b.Unmap(t.Context(), b.deviceRemains("uid-1")); err == nil || !isLink(b.link("uid-1")) {
		t.Errorf("it is gone, and its device is not: %v", err)
	}
	b.fault("NodeUnpublishVolume done", nil)
	if err := os.RemoveAll(b.devices("publish/pv/uid-1")); err != nil {
		t.Fatal(err)
	}
	b.unmap(t, "uid-1")
	b.nothing(t)
	if calls := slices.Compact(b.driver.Calls()); !slices.Equal(calls, []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"}) {
		t.Errorf("the driver was asked for %v", calls)
	}
}
