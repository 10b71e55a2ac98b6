package fakelogind

import (
	"context"
	"testing"
	"time"
)

func TestWhoWaitsForALockThatIsNotTakenHearsThatItIsNot(t *testing.T) {
	s, err := Start(t.TempDir(), "", time.Second)
	if err != nil {
		t.Skip(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.AwaitHeld(ctx, 1); err == nil {
		t.Error("a lock that nobody took is held")
	}
	if err := s.AwaitHeld(ctx, 0); err != nil {
		t.Error(err)
	}
}
