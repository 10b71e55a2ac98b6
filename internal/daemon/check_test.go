package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestALogThatHangsCostsOneGoroutineHoweverManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flushes atomic.Int32
		end := make(chan struct{})
		f := &flusher{flush: func() { flushes.Add(1); <-end }}
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := f.logsAreWritten(ctx); !errors.Is(err, errLogBlocked) {
				t.Errorf("a log that takes nothing: %v", err)
			}
			cancel()
		}
		if n := flushes.Load(); n != 1 {
			t.Errorf("%d flushes hang", n)
		}
		close(end)
		synctest.Wait()
		if err := f.logsAreWritten(t.Context()); err != nil || flushes.Load() != 2 {
			t.Errorf("once the log is read: %v, %d flushes", err, flushes.Load())
		}
	})
}
