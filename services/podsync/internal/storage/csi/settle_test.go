package csi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a driver has of a volume that it could not unstage nobody knows: the next pod
// cannot build upon it.
func TestAfterAFailureToUnstageTheNextPodHasTheVolumeStagedAnew(t *testing.T) {
	for name, of := range map[string]struct {
		setUp func(*bench, *testing.T, types.UID) error
		end   func(*bench, *testing.T, types.UID)
	}{
		"a file system": {(*bench).setUp, (*bench).end},
		"a device":      {(*bench).mapDeviceOf, (*bench).unmap},
	} {
		for _, code := range []codes.Code{codes.InvalidArgument, codes.DeadlineExceeded} {
			t.Run(name+" "+code.String(), func(t *testing.T) {
				b := newStaging(t, nil)
				failed := make(chan struct{}, 100)
				b.fault("NodeUnstageVolume", func(context.Context) error {
					failed <- struct{}{}
					return status.Error(code, "cannot")
				})
				if err := of.setUp(b, t, "uid-1"); err != nil {
					t.Fatal(err)
				}
				of.end(b, t, "uid-1")
				select {
				case <-failed:
				case <-time.After(30 * time.Second):
					t.Fatal("it was not unstaged")
				}
				if err := of.setUp(b, t, "uid-2"); err != nil {
					t.Fatal(err)
				}
				b.fault("NodeUnstageVolume", nil)
				of.end(b, t, "uid-2")
				b.nothing(t)
				asked := slices.DeleteFunc(b.driver.Calls(), func(call string) bool { return call != "NodeStageVolume" && call != "NodeUnstageVolume" })
				want := []string{"NodeStageVolume", "NodeUnstageVolume", "NodeStageVolume", "NodeUnstageVolume"}
				if got := slices.Compact(asked); !slices.Equal(got, want) {
					t.Errorf("the driver was asked for %v, want %v", got, want)
				}
			})
		}
	}
}

// TestAVolumeStaysStagedForAPodThatHasNotAskedSinceARestart: the last pod is the last one that has
// it, and not the last one that has asked for it.
func TestAVolumeStaysStagedForAPodThatHasNotAskedSinceARestart(t *testing.T) {
	b := newStaging(t, nil)
	for _, uid := range []types.UID{"uid-1", "uid-2"} {
		if err := b.setUp(t, uid); err != nil {
			t.Fatal(err)
		}
	}
	b.Volumes = b.restarted(t)
	b.register(t)
	<-b.inUse.known
	b.end(t, "uid-1")
	b.settled(t)
	b.called(t, "NodeStageVolume", "NodePublishVolume", "NodePublishVolume", "NodeUnpublishVolume")
	b.end(t, "uid-2")
	b.nothing(t)
	b.called(t, "NodeStageVolume", "NodePublishVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
}

// failingOnce is a disk that cannot be taken away the first time, in which somebody asks for
// it again.
type failingOnce struct {
	meanwhile func()
	tried     []time.Time
}

func (*failingOnce) Left() ([]v1.UniqueVolumeName, error) { return nil, nil }

func (d *failingOnce) Settle(context.Context, v1.UniqueVolumeName) (bool, error) {
	d.tried = append(d.tried, time.Now())
	if len(d.tried) > 1 {
		return false, nil
	}
	d.meanwhile()
	return false, errors.New("not yet")
}

// TestWhatIsAskedForWhileAVolumeCannotBeSettledIsDoneAtOnce: a driver that registers in the
// moment in which the one before fails is asked without the back-off.
func TestWhatIsAskedForWhileAVolumeCannotBeSettledIsDoneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &failingOnce{}
		c := New(Config{}, Deps{Node: &nodeObject{}, Disks: disk})
		disk.meanwhile = func() { c.settleAgain("") }
		c.SettleSoon("kubernetes.io/iscsi/d")
		c.work.Wait()
		if len(disk.tried) != 2 || !disk.tried[1].Equal(disk.tried[0]) {
			t.Errorf("it was tried at %v", disk.tried)
		}
		c.end()
	})
}

// TestWhatIsAskedForWhileAVolumeWaitsToBeSettledIsDoneAtOnce: its driver is there again.
func TestWhatIsAskedForWhileAVolumeWaitsToBeSettledIsDoneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &failingOnce{meanwhile: func() {}}
		c := New(Config{}, Deps{Node: &nodeObject{}, Disks: disk})
		c.SettleSoon("kubernetes.io/iscsi/d")
		synctest.Wait() // it failed, and is waited
		c.settleAgain("")
		c.work.Wait()
		if len(disk.tried) != 2 || !disk.tried[1].Equal(disk.tried[0]) {
			t.Errorf("it was tried at %v", disk.tried)
		}
		c.end()
	})
}
