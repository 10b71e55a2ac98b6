package imagegc

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// stuck is a runtime that takes 20 s to remove an image, and does not come back from
// removing the one after so many.
type stuck struct {
	*cri.Client
	after, removed atomic.Int32
}

func (s *stuck) RemoveImage(ctx context.Context, id string) error {
	if s.removed.Load() == s.after.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(20 * time.Second)
	s.removed.Add(1)
	return s.Client.RemoveImage(ctx, id)
}

func TestReclaimWaitsForImagesThatGoAndNotForARuntimeThatHangs(t *testing.T) {
	for name, c := range map[string]struct {
		after int32
		took  time.Duration
		left  string
	}{
		"all go":          {4, 80 * time.Second, ""},
		"the third hangs": {2, 40*time.Second + removal, "0 1"},
		"none goes":       {0, removal, "0 1 2 3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, Config{}, fakecri.Config{}, 4)
				images := &stuck{Client: r.cri}
				images.after.Store(c.after)
				ctx, cancel := context.WithCancel(t.Context())
				collector := New(Config{}, Deps{Runtime: images, Pods: r.pods, Containers: r.table, Events: r, Sources: r, Disk: r.disk})
				done := make(chan error, 1)
				go func() { done <- collector.Run(ctx) }()
				began := time.Now()
				freed, err := collector.Reclaim(t.Context())
				took, left := time.Since(began), r.there()
				if took != c.took || freed.Images != int(c.after) || left != c.left {
					t.Errorf("after %s %+v, left %q", took, freed, left)
				}
				if hangs := c.left != ""; hangs != errors.Is(err, errHangs) || hangs && !strings.Contains(err.Error(), " of 4 ") || !hangs && err != nil {
					t.Errorf("it says %v", err)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestReclaimDoesNotWaitForACollectionThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Config{}, fakecri.Config{}, 10)
		images := &stuck{Client: r.cri}
		ctx, cancel := context.WithCancel(t.Context())
		collector := New(usual, Deps{Runtime: images, Pods: r.pods, Containers: r.table, Events: r, Sources: r, Disk: r.disk})
		done := make(chan error, 1)
		go func() { done <- collector.Run(ctx) }()
		time.Sleep(usual.Interval + 5*time.Minute + time.Second)
		began := time.Now()
		if _, err := collector.Reclaim(t.Context()); time.Since(began) != removal || !errors.Is(err, errHangs) {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
