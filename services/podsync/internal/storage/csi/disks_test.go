package csi

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

const diskName = v1.UniqueVolumeName("kubernetes.io/iscsi/192.0.2.1:iqn.2001-04.example:d:1")

// oneDisk is Disks of which one is on the node.
type oneDisk struct {
	mu      sync.Mutex
	there   bool
	used    bool
	err     error
	settled int
}

func (d *oneDisk) Left() ([]v1.UniqueVolumeName, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.there {
		return []v1.UniqueVolumeName{diskName}, nil
	}
	return nil, nil
}

func (d *oneDisk) Settle(context.Context, v1.UniqueVolumeName) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled++
	if d.used || d.err != nil {
		return true, d.err
	}
	d.there = false
	return false, nil
}

func (b *bench) showsDisk(inUse, attached bool) {
	node := &v1.Node{}
	if inUse {
		node.Status.VolumesInUse = []v1.UniqueVolumeName{diskName}
	}
	if attached {
		node.Status.VolumesAttached = []v1.AttachedVolume{{Name: diskName}}
	}
	b.node.Store(node)
	b.NodeChanged()
}

// TestADiskIsUsedOnceTheNodeShowsItAndIsInUseUntilItIsTakenAway: else the controller would
// give one that only one node may write to another.
func TestADiskIsUsedOnceTheNodeShowsItAndIsInUseUntilItIsTakenAway(t *testing.T) {
	b := newAttaching(t)
	d := &oneDisk{used: true}
	b.disks = d
	b.Volumes = b.restarted(t)
	b.showsDisk(false, false)
	gaveUp, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		inUse bool
		cause podstate.VolumeCause
	}{{false, podstate.VolumeNotTold}, {true, podstate.VolumeDiskNotAttached}} {
		b.showsDisk(c.inUse, false)
		if got := podstate.VolumeCauseOf(b.Hold(gaveUp, podOf("ns", "uid-1"), diskName, false, false)); got != c.cause {
			t.Errorf("in use %v: it waits for cause %d", c.inUse, got)
		}
		eventually.True(t, "it is not told", func() bool { return b.inUse.isTold(diskName) })
	}
	b.showsDisk(false, false)
	done := make(chan error, 1)
	go func() { done <- b.Hold(t.Context(), podOf("ns", "uid-1"), diskName, false, false) }()
	eventually.True(t, "it is not told", func() bool { return b.inUse.isTold(diskName) })
	d.mu.Lock()
	d.there = true
	d.mu.Unlock()
	b.showsDisk(false, true)
	b.showsDisk(true, false)
	select {
	case err := <-done:
		t.Fatalf("it may be used before it is attached: %v", err)
	default:
	}
	b.showsDisk(true, true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b.SettleSoon(diskName)
	eventually.True(t, "it is settled while a pod wants it", func() bool {
		b.Volumes.mu.Lock()
		defer b.Volumes.mu.Unlock()
		return len(b.settling) == 0
	})
	d.mu.Lock()
	if d.settled != 0 {
		t.Error("a disk that a pod wants is to be taken away")
	}
	d.mu.Unlock()
	b.Forget("uid-1") // and a pod has it still, as one of before this process
	eventually.True(t, "nobody looks whether it is used", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.settled > 0
	})
	d.mu.Lock()
	d.used, d.err = false, errors.New("it is in use still")
	d.mu.Unlock()
	b.SettleSoon(diskName)
	eventually.True(t, "it is not tried again", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.settled > 2
	})
	if !b.inUse.isTold(diskName) {
		t.Error("it may be detached while it is on the node")
	}
	d.mu.Lock()
	d.err = nil
	d.mu.Unlock()
	b.SettleSoon(diskName)
	eventually.True(t, "it is in use for ever", func() bool { return !b.inUse.isTold(diskName) })
}

func TestADiskThatAPreviousRunHasLeftIsInUseUntilItIsTakenAway(t *testing.T) {
	b := newAttaching(t)
	d := &oneDisk{there: true, err: errors.New("it is in use still")}
	b.disks = d
	b.Volumes = b.restarted(t)
	b.showsDisk(false, true)
	if err := b.lookAtDisk(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !b.inUse.isTold(diskName) {
		t.Error("it may be detached while it is on the node")
	}
	b.showsDisk(true, true)
	d.mu.Lock()
	d.err = nil
	d.mu.Unlock()
	b.SettleSoon(diskName)
	eventually.True(t, "it is in use for ever", func() bool { return !b.inUse.isTold(diskName) })
}

func TestADiskIsNotWaitedForWhereNobodyAttaches(t *testing.T) {
	for name, change := range map[string]func(b *bench) (stands bool){
		"there is no controller": func(b *bench) bool { b.cfg.NoController = true; return false },
		"there is no cluster":    func(b *bench) bool { b.cfg.Standalone = true; return false },
		"it stands":              func(*bench) bool { return true },
	} {
		b := newAttaching(t)
		b.showsDisk(false, false)
		if err := b.Hold(t.Context(), podOf("ns", "uid-1"), diskName, false, change(b)); err != nil || !b.inUse.isTold(diskName) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := newAttaching(t)
	b.showsDisk(true, false)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := b.Hold(ctx, podOf("ns", "uid-1"), diskName, false, false); err == nil || !strings.Contains(err.Error(), "is not attached according to node status; the attach-detach controller says") {
		t.Error(err)
	}
}
