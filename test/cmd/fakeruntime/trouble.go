package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// trouble is how slow and unreliable the calls are that change something. Those
// that only look stay instant, as an overloaded runtime's mostly are.
type trouble struct {
	delay, jitter        time.Duration
	hangShare, failShare float64
	hangFor              time.Duration
	seed                 int64
}

// changing are the methods that trouble befalls.
var changing = map[string]bool{
	"RunPodSandbox": true, "StopPodSandbox": true, "RemovePodSandbox": true,
	"CreateContainer": true, "StartContainer": true, "StopContainer": true, "RemoveContainer": true,
}

// faults returns nil when there is no trouble.
func (t trouble) faults() fakecri.Faults {
	if t.delay <= 0 && t.jitter <= 0 && t.hangShare <= 0 && t.failShare <= 0 {
		return nil
	}
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(uint64(t.seed), 0))
	return func(_ context.Context, method string, _ any) fakecri.Fault {
		if !changing[method] {
			return fakecri.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		return t.choose(rng)
	}
}

func (t trouble) choose(rng *rand.Rand) fakecri.Fault {
	f := fakecri.Fault{Delay: t.delay}
	if t.jitter > 0 {
		f.Delay += time.Duration(rng.Int64N(int64(t.jitter)))
	}
	if rng.Float64() < t.hangShare {
		f.Delay = t.hangFor
	}
	if rng.Float64() < t.failShare {
		f.Err = status.Error(codes.DeadlineExceeded, "the runtime gave up")
	}
	return f
}
