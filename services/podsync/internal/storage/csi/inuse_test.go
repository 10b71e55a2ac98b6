package csi

import (
	"context"
	"errors"
	"testing"
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
