package csi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

const nameOf = v1.UniqueVolumeName("kubernetes.io/csi/csi.example.com^h/1")

// newAttaching is a node with a driver whose volumes must be attached.
func newAttaching(t *testing.T) *bench {
	t.Helper()
	b := newStaging(t, nil)
	b.cluster.driver.Spec.AttachRequired = nil
	b.cluster.attachments = map[string]storagev1.VolumeAttachmentStatus{}
	return b
}

// shows has the Node object show these volumes.
func (b *bench) shows(inUse, attached bool) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if inUse {
		node.Status.VolumesInUse = []v1.UniqueVolumeName{"other", nameOf}
	}
	if attached {
		node.Status.VolumesAttached = []v1.AttachedVolume{{Name: "other"}, {Name: nameOf}}
	}
	b.node.Store(node)
	b.NodeChanged()
}

func (b *bench) attached(metadata map[string]string) {
	b.cluster.attachments["csi-"+sum(handleOf+driverOf+"n1")] = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: metadata}
}

func TestAVolumeIsUsedOnceTheNodeShowsThatItIsInUseAndAttached(t *testing.T) {
	b := newAttaching(t)
	b.attached(map[string]string{"lun": "7"})
	b.shows(false, false)
	sub, err := b.InUse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if first, err := sub.Next(t.Context()); err != nil || !first.Snapshot || len(first.Changed) != 0 {
		t.Fatal(first, err)
	}
	done := make(chan error, 1)
	go func() { done <- b.Attach(t.Context(), b.claimOf("uid-1")) }()
	next, err := sub.Next(t.Context())
	if _, told := next.Changed[nameOf]; err != nil || !told {
		t.Fatal(next, err)
	}
	for _, is := range []struct{ inUse, attached bool }{{false, true}, {true, false}} {
		b.shows(is.inUse, is.attached)
		if _, missing := b.notAttached(nameOf); missing == nil {
			t.Errorf("it counts as usable when it is %+v", is)
		}
		select {
		case err := <-done:
			t.Fatalf("it may be used when it is %+v: %v", is, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	b.shows(true, true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	if s, p := b.driver.Staged()[0].GetPublishContext(), b.driver.Published()[0].GetPublishContext(); s["lun"] != "7" || p["lun"] != "7" {
		t.Errorf("staged with %v, published with %v", s, p)
	}
	b.fault("NodeUnstageVolume", func(context.Context) error {
		if _, told := b.inUse.told.Get(nameOf); !told {
			t.Error("it may be detached before it is unstaged")
		}
		return nil
	})
	b.end(t, "uid-1")
	b.nothing(t)
	if last, err := sub.Next(t.Context()); err != nil || len(last.Removed) != 1 || last.Removed[0] != nameOf {
		t.Errorf("%+v, %v", last, err)
	}
}

func TestAPodThatWaitsForAnAttachmentGoesOnOnceItsDriverNeedsNone(t *testing.T) {
	for name, tell := range map[string]func(t *testing.T, b *bench){
		"the CSIDriver changes":    func(_ *testing.T, b *bench) { b.DriverChanged(driverOf) },
		"the driver is registered": func(t *testing.T, b *bench) { b.Deregister(b.plugin); b.register(t) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newAttaching(t)
			needsNone := b.cluster.driver.DeepCopy()
			needsNone.Spec.AttachRequired = new(bool)
			b.shows(false, false)
			sub, err := b.InUse(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
			if _, err := sub.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- b.Attach(ctx, b.claimOf("uid-1")) }()
			if next, err := sub.Next(t.Context()); err != nil || len(next.Changed) != 1 {
				t.Fatal(next, err)
			}
			b.cluster.set(needsNone)
			tell(t, b)
			if err := <-done; err != nil {
				t.Fatalf("it waits for what does not come: %v", err)
			}
			b.shows(true, false) // as it was told before
			if next, err := sub.Next(t.Context()); err != nil || len(next.Removed) != 1 {
				t.Errorf("it is in use still: %+v, %v", next, err)
			}
			b.Forget("uid-1")
			b.nothing(t)
		})
	}
}

func TestWhatAVolumeWaitsForIsSaid(t *testing.T) {
	reason := errors.New("the pod was deleted")
	for _, c := range []struct {
		prepare func(b *bench)
		want    string
		cause   podstate.VolumeCause
	}{
		{func(*bench) {}, "this node's object has not been read yet: the pod was deleted", podstate.VolumeNodeUnread},
		{func(b *bench) { b.shows(false, true) }, "volume kubernetes.io/csi/csi.example.com^h/1 has not been added to the list of VolumesInUse in the node's volume status", podstate.VolumeNotTold},
		{func(b *bench) { b.shows(true, false) }, "volume kubernetes.io/csi/csi.example.com^h/1 is not attached according to node status", podstate.VolumeNotAttached},
	} {
		b := newAttaching(t)
		c.prepare(b)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(reason)
		err := b.Attach(ctx, b.claimOf("uid-1"))
		said := (&podstate.VolumeError{Volume: "v", Err: err}).Error()
		if !errors.Is(err, reason) || !strings.HasPrefix(said, `MountVolume.WaitForAttach failed for volume "v" : `) || !strings.Contains(said, c.want) {
			t.Errorf("said is %s", said)
		}
		if got := podstate.VolumeCauseOf(err); got != c.cause {
			t.Errorf("%s: cause %d, want %d", said, got, c.cause)
		}
		b.Forget("uid-1")
		b.shows(true, false)
		b.nothing(t) // also not in use any more
	}
}

func TestAnAttachmentThatIsNotThereKeepsAVolumeFromBeingStaged(t *testing.T) {
	id := "csi-" + sum(handleOf+driverOf+"n1")
	for _, c := range []struct {
		status    *storagev1.VolumeAttachmentStatus
		want      string
		detaching bool
	}{
		{nil, "volume h/1 has GET error for volume attachment " + id + `: volumeattachments.storage.k8s.io "` + id + `" not found`, false},
		{&storagev1.VolumeAttachmentStatus{}, "volume h/1 is not attached for volume attachment " + id, false},
		{&storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no room"}}, "no room", false},
		{&storagev1.VolumeAttachmentStatus{Attached: true}, "volume attachment is being deleted", true},
	} {
		b := newAttaching(t)
		b.cluster.detaching = c.detaching
		b.shows(true, true)
		if c.status != nil {
			b.cluster.attachments[id] = *c.status
		}
		err := b.setUp(t, "uid-1")
		if said := (&podstate.VolumeError{Volume: "v", Err: err}).Error(); said != `MountVolume.WaitForAttach failed for volume "v" : `+c.want {
			t.Errorf("said is %s", said)
		}
		if got := podstate.VolumeCauseOf(err); got != podstate.VolumeNotAttached {
			t.Errorf("%v: cause %d", err, got)
		}
		b.called(t)
		b.Forget("uid-1")
		b.nothing(t)
	}
}

func TestWhatARunHasPublishedTheNextDoesNotWaitFor(t *testing.T) {
	for name, of := range map[string]struct {
		setUp func(*bench, *testing.T, types.UID) error
		end   func(*bench, *testing.T, types.UID)
	}{
		"a file system": {(*bench).setUp, (*bench).end},
		"a device":      {(*bench).mapDeviceOf, (*bench).unmap},
	} {
		t.Run(name, func(t *testing.T) {
			b := newAttaching(t)
			b.attached(nil)
			b.shows(true, true)
			if err := of.setUp(b, t, "uid-1"); err != nil {
				t.Fatal(err)
			}
			b.Volumes = b.restarted(t)
			b.register(t)
			b.shows(false, false)
			<-b.inUse.known
			if _, told := b.inUse.told.Get(nameOf); !told {
				t.Error("it may be detached though a pod has it")
			}
			waits := make(chan error, 1)
			go func() { waits <- of.setUp(b, t, "uid-1") }()
			select {
			case err := <-waits:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(30 * time.Second):
				t.Error("it is waited for")
				b.shows(true, true)
				<-waits
			}
			of.end(b, t, "uid-1")
			b.shows(true, false)
			b.nothing(t)
		})
	}
}

// TestWhatIsAttachedStaysInUseThoughItsDriverNeedsNoAttachmentAnyMore: a newer version of its pod
// asks for it again, and it would be detached while it is mounted.
func TestWhatIsAttachedStaysInUseThoughItsDriverNeedsNoAttachmentAnyMore(t *testing.T) {
	b := newAttaching(t)
	b.attached(nil)
	b.shows(true, true)
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	needsNone := b.cluster.driver.DeepCopy()
	needsNone.Spec.AttachRequired = new(bool)
	b.cluster.set(needsNone)
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	if names, err := b.inUseNow(t); err != nil || !slices.Equal(names, []v1.UniqueVolumeName{nameOf}) {
		t.Errorf("in use are %v, %v", names, err)
	}
	b.end(t, "uid-1")
	b.nothing(t)
}

// TestAVolumeOfADriverThatTheClusterSaysNothingOfIsAttachedAndPublished: its CSIDriver may be left
// out.
func TestAVolumeOfADriverThatTheClusterSaysNothingOfIsAttachedAndPublished(t *testing.T) {
	b := newAttaching(t)
	b.cluster.set(nil)
	b.attached(map[string]string{"lun": "7"})
	b.shows(true, true)
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	if p := b.driver.Published()[0].GetPublishContext(); p["lun"] != "7" {
		t.Errorf("published with %v", p)
	}
	b.end(t, "uid-1")
	b.nothing(t)
}

func TestAVolumeThatNeedNotBeAttachedIsNotInUse(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	b.Volumes = b.restarted(t)
	b.register(t)
	<-b.inUse.known
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	if b.inUse.told.Len() != 0 {
		t.Errorf("told are %v", b.inUse.told.Snapshot())
	}
	b.end(t, "uid-1")
	b.nothing(t)
}

// TestWhatIsAttachedStaysInUseOverARestartThoughItsDriverNeedsNoAttachmentAnyMore: else
// it would be detached while a pod has it mounted.
func TestWhatIsAttachedStaysInUseOverARestartThoughItsDriverNeedsNoAttachmentAnyMore(t *testing.T) {
	for name, known := range map[string]bool{"the Node is known at once": true, "the Node is known later": false} {
		t.Run(name, func(t *testing.T) {
			b := newAttaching(t)
			b.attached(nil)
			b.shows(true, true)
			if err := b.setUp(t, "uid-1"); err != nil {
				t.Fatal(err)
			}
			needsNone := b.cluster.driver.DeepCopy()
			needsNone.Spec.AttachRequired = new(bool)
			b.cluster.set(needsNone)
			if !known {
				b.node.Store(nil)
			}
			b.Volumes = b.restarted(t)
			b.register(t)
			<-b.inUse.known
			if err := b.setUp(t, "uid-1"); err != nil {
				t.Fatal(err)
			}
			b.shows(true, true)
			if names, err := b.inUseNow(t); err != nil || !slices.Equal(names, []v1.UniqueVolumeName{nameOf}) {
				t.Errorf("in use are %v, %v", names, err)
			}
			b.end(t, "uid-1")
			b.nothing(t)
		})
	}
}

// TestWhereNoControllerAttachesAVolumeSaysSo: a kubelet attaches none of a CSI driver
// either, whatever enableControllerAttachDetach says.
func TestWhereNoControllerAttachesAVolumeSaysSo(t *testing.T) {
	b := newAttaching(t)
	b.cfg.NoController = true
	b.shows(false, false)
	err := b.Attach(t.Context(), b.claimOf("uid-1"))
	failed := podstate.VolumeErrors{{Volume: "v", Err: err}}
	if want := `AttachVolume.Attach failed for volume "v" : attaching volumes from the kubelet is not supported`; !strings.HasPrefix(failed.Error(), want) || failed.EventReason() != "FailedAttachVolume" || podstate.VolumeCauseOf(err) != podstate.VolumeNoController {
		t.Errorf("%s: %v", failed.EventReason(), failed)
	}
	b.cluster.driver.Spec.AttachRequired = new(bool)
	if err := b.Attach(t.Context(), b.claimOf("uid-2")); err != nil {
		t.Errorf("one that need not be attached: %v", err)
	}
}

// overtaken is a Node object that changes while somebody reads it.
type overtaken struct {
	nodeObject
	meanwhile func()
}

func (n *overtaken) Object() *v1.Node {
	now := n.Load()
	if do := n.meanwhile; do != nil {
		n.meanwhile = nil
		do()
	}
	return now
}

func TestANodeOfBeforeAVolumeWasToldOfAgainDoesNotSayThatItIsInUse(t *testing.T) {
	b := newAttaching(t)
	b.shows(true, true)
	node := &overtaken{}
	node.Store(b.node.Load())
	c := New(Config{RootDir: b.root, NodeName: "n1"}, Deps{Objects: b.cluster, Node: node, Mounter: b.mounts})
	c.inUse.leaving[nameOf] = true // nodestatus is writing the Node without it
	c.inUse.want("uid-1", volumeID{driverOf, handleOf}, true, node.Load)
	node.meanwhile = func() {
		node.Store(&v1.Node{})
		c.NodeChanged()
	}
	if why, err := c.notAttached(nameOf); why != podstate.VolumeNotTold || err == nil || !strings.Contains(err.Error(), "has not been added to the list of VolumesInUse") {
		t.Errorf("it may be used, and the Node does not name it: %v", err)
	}
}
