package observe

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

func TestOthersAreToldWhatTheRuntimeHasWhenEachPodWasLookedAtAndNoLaterForOneThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		slow         fakecri.Fault
		before, then time.Duration
		seen         int
	}{
		"a slow runtime":             {fakecri.Fault{Delay: 4 * time.Second}, 3500 * time.Millisecond, 4500 * time.Millisecond, 2},
		"one that says nothing of b": {fakecri.Fault{Hang: true}, firstLook - time.Second, firstLook + time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var slow atomic.Pointer[string]
				r := newRig(t, fakecri.Config{NoEvents: true, Faults: func(_ context.Context, _ string, req any) fakecri.Fault {
					if id := slow.Load(); id != nil && fakecri.Subject(req) == *id {
						return c.slow
					}
					return fakecri.Fault{}
				}})
				r.start("a", nil)
				sandbox, _ := r.start("b", nil)
				slow.Store(&sandbox)
				table := podcache.NewTable(1)
				o := New(Config{}, Deps{Client: r.client, Sink: noSink{}, Rows: table})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				began := time.Now()
				go func() { defer close(done); _ = o.Run(ctx) }()
				defer func() { cancel(); <-done }()
				select {
				case <-table.Whole():
				case <-time.After(time.Minute):
				}
				took := time.Since(began)
				if got := len(table.RunningPods()); took < c.before || took > c.then || got < c.seen {
					t.Errorf("after %s, with %d pods", took, got)
				}
			})
		})
	}
}

func TestARuntimeThatHasNothingIsKnownWholeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{})
		table := podcache.NewTable(1)
		o := New(Config{}, Deps{Client: r.client, Sink: noSink{}, Rows: table})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = o.Run(ctx) }()
		defer func() { cancel(); <-done }()
		synctest.Wait()
		select {
		case <-table.Whole():
		default:
			t.Error("it is waited for pods that there are not")
		}
	})
}
