package csi

import (
	"context"
	"errors"
	"testing"
)

func TestAVolumeIsInUseAsLongAsAPodWantsItOrTheDiskHasIt(t *testing.T) {
	u := newInUse(1, &nodeObject{}) // nobody has said anything yet
	id, other := volumeID{"d", "h"}, volumeID{"d", "h2"}
	is := func(want bool) {
		t.Helper()
		if _, told := u.told.Get("kubernetes.io/csi/d^h"); told != want {
			t.Errorf("in use: %v, want %v", told, want)
		}
	}
	u.found(id)
	is(true)
	u.want("a", id, true)
	u.want("b", id, true)
	u.want("b", other, true)
	u.free(id)
	is(true)
	u.forget("a")
	u.free(id)
	is(true)
	if ids := u.forget("b"); len(ids) != 2 {
		t.Errorf("it wanted %v", ids)
	}
	is(true) // until it is looked at
	u.free(id)
	is(false)
	u.want("c", id, false)
	u.found(id)
	is(false)
}

// The controller may have begun to detach a volume of which the Node has shown that it is
// free: what the Node shows from then on counts.
func TestAVolumeThatIsFreedAndWantedAgainIsInUseOnceTheNodeHasShownBoth(t *testing.T) {
	b := newAttaching(t)
	<-b.inUse.known
	id := volumeID{driverOf, handleOf}
	is := func(want bool) {
		t.Helper()
		if told := b.inUse.isTold(nameOf); told != want {
			t.Errorf("told: %v, want %v", told, want)
		}
	}
	b.inUse.want("a", id, true)
	is(true)
	b.inUse.forget("a")
	b.inUse.free(id)
	is(true) // the Node may still be on its way to show it
	b.inUse.want("b", id, true)
	b.shows(true, true)
	is(true) // it is wanted again, and was never free
	if err := b.notAttached(nameOf); err != nil {
		t.Error(err)
	}
	b.inUse.forget("b")
	b.inUse.free(id)
	is(false)
	b.inUse.want("c", id, true) // the Node still shows the first time
	is(false)
	if err := b.notAttached(nameOf); err == nil {
		t.Error("what the Node shows is from before")
	}
	b.shows(true, true) // for another reason
	is(false)
	b.shows(false, true)
	is(true)
	b.shows(true, true)
	if err := b.notAttached(nameOf); err != nil {
		t.Error(err)
	}
}

func TestWhoAsksWhatIsInUseWaitsUntilTheDiskWasLookedAt(t *testing.T) {
	c := New(Config{}, Deps{})
	reason := errors.New("the caller has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if _, err := c.InUse(ctx); !errors.Is(err, reason) {
		t.Error(err)
	}
	close(c.inUse.known)
	sub, err := c.InUse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sub.Close()
}
