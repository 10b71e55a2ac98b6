package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

func TestSignalsAreNotMeasuredMoreOftenThanOnceASecond(t *testing.T) {
	s, to := newServer(t, &memory{used: 1}, "/proc"), &stream[statsv1.WatchSignalsResponse]{ctx: t.Context()}
	err := s.WatchSignals(&statsv1.WatchSignalsRequest{Period: durationpb.New(time.Millisecond)}, to)
	if !errors.Is(err, rpcerr.ErrInvalid) || len(to.sent) > 0 {
		t.Errorf("%v, %d frames", err, len(to.sent))
	}
}

func TestAWatcherThatHasHeardNothingIsToldThatNothingCanBeMeasured(t *testing.T) {
	s, to := newServer(t, &memory{}, "/proc"), &stream[statsv1.WatchSignalsResponse]{ctx: t.Context()}
	if err := s.WatchSignals(&statsv1.WatchSignalsRequest{}, to); !errors.Is(err, rpcerr.ErrUnavailable) || len(to.sent) > 0 {
		t.Errorf("%v, %d frames", err, len(to.sent))
	}
}

func TestWhatMovesIsSentAtOnceAndWhatStandsOnceInAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := &memory{used: 1 << 20}
		s := newServer(t, used, "/proc")
		ctx, cancel := context.WithCancel(t.Context())
		to := &stream[statsv1.WatchSignalsResponse]{ctx: ctx}
		done := make(chan error, 1)
		go func() {
			done <- s.WatchSignals(&statsv1.WatchSignalsRequest{Period: durationpb.New(40 * time.Second)}, to)
		}()
		frames := func(after time.Duration) int {
			time.Sleep(after) // Virtual.
			synctest.Wait()
			return len(to.all())
		}
		if n := frames(35 * time.Second); n != 1 {
			t.Errorf("%d frames in less than a period, want 1", n)
		}
		if n := frames(10 * time.Second); n != 2 {
			t.Errorf("%d frames after a period, want 2", n)
		}
		used.use(100 << 30)
		if n := frames(11 * time.Second); n != 3 {
			t.Errorf("%d frames after the memory moved, want 3", n)
		}
		used.use(0)
		if n := frames(5 * time.Minute); n != 3 {
			t.Errorf("%d frames while nothing can be measured, want 3", n)
		}
		used.use(100 << 30)
		if n := frames(11 * time.Second); n != 4 || to.all()[3].GetEpoch() != 7 {
			t.Errorf("%d frames after it can be again, want 4", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
