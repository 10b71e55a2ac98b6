package csi

import (
	"testing"

	"github.com/polylet/polylet/internal/testkit/dirtree"
)

// TestAStartFindsVolumesOfDriversWithoutWriting: which volumes are staged and published is
// read, and what a driver is asked for again is written nowhere anew.
func TestAStartFindsVolumesOfDriversWithoutWriting(t *testing.T) {
	b := newStaging(t, nil)
	if _, err := b.have(t, b.claimOf("uid-1")); err != nil {
		t.Fatal(err)
	}
	before := dirtree.Of(t, b.root)
	b.Volumes = b.restarted(t)
	b.register(t)
	if changed := dirtree.Written(before, dirtree.Of(t, b.root)); len(changed) != 0 {
		t.Errorf("by the start alone %v was written", changed)
	}
	if _, err := b.have(t, b.claimOf("uid-1")); err != nil {
		t.Fatal(err)
	}
	if changed := dirtree.Written(before, dirtree.Of(t, b.root)); len(changed) != 0 {
		t.Errorf("by the first set-up %v was written", changed)
	}
}

// TestAStartFindsDevicesWithoutWriting is that of a volume that is a device.
func TestAStartFindsDevicesWithoutWriting(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	before := dirtree.Of(t, b.root)
	b.Volumes = b.restarted(t)
	b.register(t)
	if err := b.mapDeviceOf(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	if changed := dirtree.Written(before, dirtree.Of(t, b.root)); len(changed) != 0 {
		t.Errorf("written was %v", changed)
	}
}
