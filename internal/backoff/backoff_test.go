package backoff

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDelaysDoubleUpToTheMaximumAndResetStartsOver(t *testing.T) {
	b := New(Config{Initial: 100 * time.Millisecond, Max: time.Second})
	for i, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		if got := b.Next(); got != want*time.Millisecond {
			t.Fatalf("delay %d = %v, want %v", i, got, want*time.Millisecond)
		}
	}
	b.Reset()
	if got := b.Next(); got != 100*time.Millisecond {
		t.Fatalf("after Reset %v", got)
	}
}

func TestJitterStaysInItsBand(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 200 {
		got := New(Config{Initial: time.Second, Max: time.Minute, Jitter: 0.2}).Next()
		if got < 800*time.Millisecond || got > 1200*time.Millisecond {
			t.Fatalf("%v is out of ±20 %%", got)
		}
		seen[got] = true
	}
	if len(seen) < 10 {
		t.Fatalf("only %d different delays", len(seen))
	}
}

func TestAQuietTimeForgetsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Initial: time.Second, Max: time.Minute, ResetAfter: time.Minute})
		b.Next()
		b.Next()
		time.Sleep(61 * time.Second)
		if got := b.Next(); got != time.Second {
			t.Fatalf("after a quiet minute %v", got)
		}
	})
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b := New(Config{Initial: time.Hour, Max: time.Hour})
		if err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Wait = %v", err)
		}
		short := New(Config{Initial: time.Second})
		start := time.Now()
		if err := short.Wait(t.Context()); err != nil || time.Since(start) != time.Second {
			t.Fatalf("Wait = %v after %v", err, time.Since(start))
		}
	})
}
