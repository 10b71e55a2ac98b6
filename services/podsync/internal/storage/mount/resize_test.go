package mount

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/exec"
)

func TestAProgramThatHangsHoldsNobodyUpAndIsNotBegunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r resizes
		var began atomic.Int32
		hangs := make(chan struct{})
		grow := func(ctx context.Context) error {
			if began.Add(1) == 1 {
				<-hangs // in the kernel, whatever becomes of ctx
			}
			return nil
		}
		try := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return r.join(ctx, "/mnt", grow)
		}
		for range 2 {
			if err := try(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "still being grown") {
				t.Errorf("%v", err)
			}
		}
		if n := began.Load(); n != 1 {
			t.Errorf("begun %d times beside itself", n)
		}
		other := r.join(t.Context(), "/other", func(context.Context) error { return nil })
		if other != nil {
			t.Errorf("another volume: %v", other)
		}
		close(hangs)
		if err := try(); err != nil || began.Load() != 2 {
			t.Errorf("%v; begun %d times, and the device may have grown since the first", err, began.Load())
		}
		if len(r.all) != 0 {
			t.Errorf("still kept: %v", r.all)
		}
	})
}

// TestADeviceIsGrownOnceWhereverItIsMounted: pods that share a volume have it each on their
// own place.
func TestADeviceIsGrownOnceWhereverItIsMounted(t *testing.T) {
	k, end := New(Config{}), make(chan struct{})
	defer close(end)
	begun := make(chan error, 1)
	go func() {
		begun <- k.resizes.join(t.Context(), "/dev/absent", func(context.Context) error { <-end; return nil })
	}()
	for there := false; !there; time.Sleep(time.Millisecond) {
		k.resizes.mu.Lock()
		there = k.resizes.all["/dev/absent"] != nil
		k.resizes.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := k.Resize(ctx, "/dev/absent", "/of/another/pod"); err == nil || !strings.Contains(err.Error(), "still being grown") {
		t.Errorf("%v", err)
	}
}

func TestAnErrorOfWhatWasJoinedIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r resizes
		broken, end := errors.New("broken"), make(chan struct{})
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- r.join(t.Context(), "/mnt", func(context.Context) error { <-end; return broken }) }()
		}
		synctest.Wait()
		close(end)
		for range 2 {
			if err := <-errs; !errors.Is(err, broken) {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestAProgramEndsWithItsTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := (bounded{exec.New(), ctx}).Command("sleep", "60").CombinedOutput(); err == nil || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
