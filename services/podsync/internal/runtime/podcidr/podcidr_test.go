package podcidr

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// runtime refuses for as long as err is set.
type runtime struct {
	mu    sync.Mutex
	err   error
	asked int
	told  []string
}

func (r *runtime) UpdatePodCIDR(_ context.Context, cidr string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.err == nil {
		r.told = append(r.told, cidr)
	}
	return r.err
}

func (r *runtime) refuse(err error) { r.mu.Lock(); r.err = err; r.mu.Unlock() }

func TestTheRuntimeIsToldEachNetworkOnceAndARefusalIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		wanted, ready, lines := "", false, 0
		set := func(cidr string, up bool) { mu.Lock(); wanted, ready = cidr, up; mu.Unlock() }
		rt := &runtime{err: errors.New("no network plugin")}
		teller := New(Deps{
			Runtime: rt,
			Ready:   func() bool { mu.Lock(); defer mu.Unlock(); return ready },
			Wanted:  func() string { mu.Lock(); defer mu.Unlock(); return wanted },
		})
		ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), funcr.New(func(_, line string) {
			if strings.Contains(line, "the pod network") {
				mu.Lock()
				lines++
				mu.Unlock()
			}
		}, funcr.Options{})))
		done := make(chan error, 1)
		go func() { done <- teller.Run(ctx) }()
		step := func(cidr string, up bool) {
			set(cidr, up)
			teller.Check()
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		step("10.1.0.0/24", false)
		if rt.asked != 0 {
			t.Errorf("a runtime that does not answer was asked %d times", rt.asked)
		}
		step("10.1.0.0/24", true)
		mu.Lock()
		if lines != 1 || rt.asked < 5 {
			t.Errorf("%d lines about %d refusals", lines, rt.asked)
		}
		mu.Unlock()
		rt.refuse(nil)
		time.Sleep(time.Minute) // tried again by itself
		synctest.Wait()
		step("10.1.0.0/24", true)
		step("", true)
		step("10.2.0.0/24", true)
		if want := []string{"10.1.0.0/24", "10.2.0.0/24"}; !slices.Equal(rt.told, want) {
			t.Errorf("told %q, want %q", rt.told, want)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
