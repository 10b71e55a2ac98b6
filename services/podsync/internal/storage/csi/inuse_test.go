package csi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestAVolumeIsInUseAsLongAsAPodWantsItOrTheDiskHasIt(t *testing.T) {
	u := newInUse(1)
	id, other := volumeID{"d", "h"}, volumeID{"d", "h2"}
	is := func(want bool) {
		t.Helper()
		if _, told := u.told.Get("kubernetes.io/csi/d^h"); told != want {
			t.Errorf("in use: %v, want %v", told, want)
		}
	}
	u.found(id)
	is(true)
	u.want("a", id, true, unknown)
	u.want("b", id, true, unknown)
	u.want("b", other, true, unknown)
	u.free(id, unknown)
	is(true)
	u.forget("a")
	u.free(id, unknown)
	is(true)
	if ids, _ := u.forget("b"); len(ids) != 2 {
		t.Errorf("it wanted %v", ids)
	}
	is(true) // until it is looked at
	u.free(id, unknown)
	is(false)
	u.want("c", id, false, unknown)
	u.found(id)
	is(false)
}

func TestWhoAsksWhatIsInUseWaitsUntilTheDiskWasLookedAt(t *testing.T) {
	node := &nodeObject{}
	c := New(Config{}, Deps{Node: node})
	reason := errors.New("the caller has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if _, err := c.InUse(ctx); !errors.Is(err, reason) {
		t.Error(err)
	}
	close(c.inUse.known)
	if _, err := c.InUse(ctx); !errors.Is(err, reason) {
		t.Error(err) // nobody knows what the Node says
	}
	node.Store(&v1.Node{})
	sub, err := c.InUse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sub.Close()
}

// naming is a Node that says that these volumes are in use.
func naming(names ...v1.UniqueVolumeName) func() *v1.Node {
	return func() *v1.Node { return &v1.Node{Status: v1.NodeStatus{VolumesInUse: names}} }
}

// unknown is a Node that was not read yet.
func unknown() *v1.Node { return nil }

// told asserts which of the two volumes are in use.
func told(t *testing.T, u *inUse, want ...v1.UniqueVolumeName) {
	t.Helper()
	if got := slices.Sorted(maps.Keys(u.told.Snapshot())); !slices.Equal(got, want) {
		t.Errorf("in use are %v, want %v", got, want)
	}
}

func TestAVolumeIsInUseAgainOnceTheNodeWasSeenWithoutIt(t *testing.T) {
	u, id := newInUse(1), volumeID{"d", "h"}
	with, without := naming("kubernetes.io/csi/d^h"), naming()
	u.want("a", id, true, unknown)
	u.see(with)
	u.forget("a")
	u.free(id, with)
	told(t, &u)
	u.want("b", id, true, unknown) // the Node names it still, and will not in a moment
	told(t, &u)
	u.see(with)
	told(t, &u)
	u.see(without)
	told(t, &u, "kubernetes.io/csi/d^h")
	u.forget("b")
	u.see(with)
	u.free(id, with)
	u.see(without)
	told(t, &u) // nobody wants it
}

func TestAVolumeIsInUseNoMoreOnceTheNodeWasSeenWithIt(t *testing.T) {
	u, id := newInUse(1), volumeID{"d", "h"}
	with, without := naming("kubernetes.io/csi/d^h"), naming()
	u.want("a", id, true, unknown)
	u.forget("a")
	u.free(id, without) // it is on its way into the Node
	told(t, &u, "kubernetes.io/csi/d^h")
	u.see(without)
	told(t, &u, "kubernetes.io/csi/d^h")
	u.see(with)
	told(t, &u)
	u.see(without)
	u.want("b", id, true, unknown)
	u.forget("b")
	u.free(id, without)
	u.want("c", id, true, without)
	u.see(with)
	told(t, &u, "kubernetes.io/csi/d^h")
	u.want("c", id, false, with) // it need not be attached
	told(t, &u)
}

// TestWhatLeavesTheNodeDoesSoWhateverIsSaidOfItsDriver: whoever wants it attached again
// would find it in a Node that is being written without it.
func TestWhatLeavesTheNodeDoesSoWhateverIsSaidOfItsDriver(t *testing.T) {
	u, id := newInUse(1), volumeID{"d", "h"}
	with, without := naming("kubernetes.io/csi/d^h"), naming()
	u.want("a", id, true, unknown)
	u.see(with)
	u.forget("a")
	u.free(id, with)
	u.want("b", id, false, with)
	u.want("b", id, true, with)
	told(t, &u)
	u.see(without)
	told(t, &u, "kubernetes.io/csi/d^h")
}

func TestWhatIsOnItsWayIntoTheNodeIsInUseUntilThatIsSeenThoughItNeedNotBeAttachedAnyMore(t *testing.T) {
	u, id := newInUse(1), volumeID{"d", "h"}
	with, without := naming("kubernetes.io/csi/d^h"), naming()
	u.want("a", id, true, without)
	u.want("a", id, false, without)
	told(t, &u, "kubernetes.io/csi/d^h")
	u.see(with)
	told(t, &u)
	u.want("a", id, true, with)
	told(t, &u)
	u.see(without)
	told(t, &u, "kubernetes.io/csi/d^h")
}

func TestAVolumeThatAPodHasAttachedStaysInUseWhenTheNextNeedsNoAttachment(t *testing.T) {
	u, id := newInUse(1), volumeID{"d", "h"}
	u.want("a", id, true, unknown)
	u.want("b", id, false, unknown) // the cluster says something else of the driver meanwhile
	u.found(id)
	told(t, &u, "kubernetes.io/csi/d^h")
	u.forget("a")
	u.forget("b")
	u.free(id, naming("kubernetes.io/csi/d^h"))
	told(t, &u)
}

// TestAVolumeThatAPodHadAttachedBeforeARestartStaysInUseWhenAnotherAsksFirst: the driver
// needs no attachment since, and the controller would detach what the Node does not name.
func TestAVolumeThatAPodHadAttachedBeforeARestartStaysInUseWhenAnotherAsksFirst(t *testing.T) {
	u, id := newInUse(1), volumeID{"d", "h"}
	name := uniqueName(id)
	with := func() *v1.Node {
		return &v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{name}, VolumesAttached: []v1.AttachedVolume{{Name: name}}}}
	}
	u.found(id)
	u.foundFirst([]volumeID{id}, with())
	u.want("new", id, false, with)
	told(t, &u, name)
	u.want("old", id, true, with)
	u.forget("old")
	u.forget("new")
	u.free(id, with)
	told(t, &u)
	u.see(naming())
	u.want("next", id, false, with) // nobody has it from before
	told(t, &u)
}

func TestWhatTheNodeNamesAtFirstIsInUseUntilItIsKnownThatNoPodHasIt(t *testing.T) {
	b := newAttaching(t)
	b.shows(true, true)
	<-b.inUse.known
	news := b.inUse.told.Subscribe(t.Context())
	defer news.Close()
	if first, err := news.Next(t.Context()); err != nil || len(first.Changed) != 0 {
		t.Fatalf("before anybody asks, in use are %v, %v", first.Changed, err)
	}
	b.Volumes.mu.Lock() // nothing is settled
	settle := sync.OnceFunc(b.Volumes.mu.Unlock)
	defer settle()
	asked := make(chan error, 1)
	go func() {
		sub, err := b.InUse(t.Context())
		if err == nil {
			sub.Close()
		}
		asked <- err
	}()
	first, err := news.Next(t.Context())
	if _, is := first.Changed[nameOf]; err != nil || !is {
		t.Fatalf("in use are %v, %v", first.Changed, err)
	}
	settle()
	if next, err := news.Next(t.Context()); err != nil || !slices.Equal(next.Removed, []v1.UniqueVolumeName{nameOf}) {
		t.Errorf("then %+v, %v", next, err)
	}
	if err := <-asked; err != nil {
		t.Error(err)
	}
	b.nothing(t)
}

func TestWhoeverAsksWhatIsInUseIsToldOfAllThatTheNodeNamesAtFirst(t *testing.T) {
	b := newBench(t, nil)
	names := []v1.UniqueVolumeName{"kubernetes.io/csi/d^h1", "kubernetes.io/csi/d^h2"}
	b.node.Store(&v1.Node{Status: v1.NodeStatus{VolumesInUse: names}})
	b.NodeChanged()
	<-b.inUse.known
	b.Volumes.mu.Lock() // nothing is settled
	settle := sync.OnceFunc(b.Volumes.mu.Unlock)
	defer settle()
	news := b.inUse.told.Subscribe(t.Context())
	defer news.Close()
	if _, err := news.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() {
		sub, err := b.InUse(t.Context())
		if err == nil {
			sub.Close()
		}
		first <- err
	}()
	if _, err := news.Next(t.Context()); err != nil { // it has begun
		t.Fatal(err)
	}
	second, err := b.inUseNow(t)
	settle()
	if err != nil || !slices.Equal(second, names) {
		t.Errorf("the second is told of %v, %v", second, err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// inUseNow is what somebody is told who asks.
func (b *bench) inUseNow(t *testing.T) ([]v1.UniqueVolumeName, error) {
	sub, err := b.InUse(t.Context())
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	now, err := sub.Next(t.Context())
	return slices.Sorted(maps.Keys(now.Changed)), err
}
