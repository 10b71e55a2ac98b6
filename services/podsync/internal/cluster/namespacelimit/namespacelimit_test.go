package namespacelimit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneNamespaceWaitsForItsOwnSlotsAndForNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool Pool
		var held []func()
		for range Most {
			release, err := pool.Acquire(t.Context(), "crowded")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		other, err := pool.Acquire(t.Context(), "quiet")
		if err != nil {
			t.Fatal(err)
		}
		if n := pool.Namespaces(); n != 2 {
			t.Errorf("%d namespaces have something under way", n)
		}
		began := time.Now()
		time.AfterFunc(time.Minute, held[0])
		next, err := pool.Acquire(t.Context(), "crowded")
		if err != nil || time.Since(began) != time.Minute {
			t.Errorf("the next one came after %v, %v", time.Since(began), err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the pod is gone")
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if _, err := pool.Acquire(ctx, "crowded"); !errors.Is(err, gone) {
			t.Errorf("who gave up was told %v", err)
		}
		next()
		other()
		for _, release := range held[1:] {
			release()
		}
		if n := pool.Namespaces(); n != 0 {
			t.Errorf("%d namespaces are kept", n)
		}
	})
}
