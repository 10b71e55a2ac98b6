package disk

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheRuntimesAccountIsSharedAndRenewedBehindTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		r := NewRuntime(time.Minute, func(context.Context) (RuntimeUsage, error) {
			calls++
			time.Sleep(time.Second)
			return RuntimeUsage{Images: []Usage{{Bytes: uint64(calls)}}}, nil
		})
		if got := r.Get(t.Context(), 10*time.Second).Images[0].Bytes; got != 1 {
			t.Fatalf("bytes %d; want the first answer", got)
		}
		time.Sleep(20 * time.Second)
		start := time.Now()
		if got := r.Get(t.Context(), 10*time.Second).Images[0].Bytes; got != 1 || time.Since(start) != 0 {
			t.Errorf("bytes %d after %s; want the old answer at once", got, time.Since(start))
		}
		time.Sleep(2 * time.Second)
		if got := r.Get(t.Context(), 10*time.Second).Images[0].Bytes; got != 2 || calls != 2 {
			t.Errorf("bytes %d, %d questions; want the second answer", got, calls)
		}
		time.Sleep(time.Second)
		if got := r.Renew(t.Context()).Images[0].Bytes; got != 3 {
			t.Errorf("bytes %d; want a new answer, though the second is not old", got)
		}
	})
}

func TestARuntimeThatDoesNotAnswerCostsNoMoreThanTheCallersPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRuntime(time.Minute, func(ctx context.Context) (RuntimeUsage, error) {
			<-ctx.Done()
			return RuntimeUsage{}, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		if got := r.Get(ctx, time.Second); got.Images != nil || time.Since(start) != 500*time.Millisecond {
			t.Errorf("%v after %s", got, time.Since(start))
		}
		time.Sleep(2 * time.Minute)
	})
}
