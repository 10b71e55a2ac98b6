package podsync

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// work is what calls cost an overloaded runtime; those that are not named only look.
var work = map[string]time.Duration{
	"RunPodSandbox": 4, "CreateContainer": 1, "StartContainer": 3, "StopContainer": 1, "StopPodSandbox": 3,
	"RemoveContainer": 1, "RemovePodSandbox": 1,
}

// queued is a runtime that does one call after the other, those too that nobody
// waits for any more: a change takes its share of work times unit, a look takes look.
func queued(unit, look time.Duration) fakecri.Faults {
	var mu sync.Mutex
	var free time.Time
	return func(_ context.Context, method string, _ any) fakecri.Fault {
		if method == "event" || method == "GetContainerEvents" {
			return fakecri.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		takes := look
		if share, ok := work[method]; ok {
			takes = share * unit
		}
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		free = free.Add(takes)
		return fakecri.Fault{Delay: free.Sub(now)}
	}
}

// shaky is a runtime in which changes take 2 to 5 s, half of them 30 s, and some
// end with DeadlineExceeded, before or after what they were to do.
func shaky() fakecri.Faults {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 1))
	return func(_ context.Context, method string, _ any) fakecri.Fault {
		if work[method] == 0 {
			return fakecri.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		f := fakecri.Fault{Delay: 2*time.Second + time.Duration(rng.Int64N(int64(3*time.Second)))}
		if rng.IntN(2) == 0 {
			f.Delay = 30 * time.Second
		}
		if rng.IntN(5) == 0 {
			f.Err, f.After = status.Error(codes.DeadlineExceeded, "context deadline exceeded"), rng.IntN(2) == 0
		}
		return f
	}
}

func TestPodsStartHoweverSlowTheRuntimeIs(t *testing.T) {
	const pods = 60
	for _, tc := range []struct {
		name   string
		faults fakecri.Faults
		within time.Duration // far more than what the runtime's own work takes
	}{
		{"calls wait for each other", queued(250*time.Millisecond, 50*time.Millisecond), 15 * time.Minute},
		{"looks wait for longer than a look should take", queued(250*time.Millisecond, 2*time.Second), 60 * time.Minute},
		{"every call takes longer than a look should", func(_ context.Context, method string, _ any) fakecri.Fault {
			if method == "event" {
				return fakecri.Fault{}
			}
			return fakecri.Fault{Delay: 20 * time.Second}
		}, 30 * time.Minute},
		{"half of the calls hang, some time out", shaky(), 30 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowdOn(t, fakecri.Config{Images: []string{"app:1"}, Faults: tc.faults})
				began := time.Now()
				for i := range pods {
					c.create(t, fmt.Sprintf("p%d", i))
				}
				half := time.Duration(0)
				for {
					ready, _ := c.count()
					if half == 0 && ready >= pods/2 {
						half = time.Since(began)
					}
					if ready == pods {
						break
					}
					if time.Since(began) > tc.within {
						t.Fatalf("after %v only %d of %d pods are Ready; calls: %v", tc.within, ready, pods, c.runtime.Calls())
					}
					time.Sleep(5 * time.Second)
				}
				t.Logf("half Ready after %v, all after %v; calls: %v", half, time.Since(began), c.runtime.Calls())
			})
		})
	}
}

func newCrowdOn(t testing.TB, cfg fakecri.Config) *crowd {
	t.Helper()
	c := &crowd{runtime: fakecri.New(cfg), pods: map[string]bool{}, changed: make(chan struct{}, 1)}
	c.api = fakeapiserver.New(fakeapiserver.Config{OnWrite: c.note})
	c.service = startInCluster(t, c.runtime, c.api)
	return c
}
