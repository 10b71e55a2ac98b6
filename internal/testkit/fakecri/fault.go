package fakecri

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Fault is what goes wrong with one call or one event. The zero Fault is none.
type Fault struct {
	// Delay comes before everything else.
	Delay time.Duration
	// Err is answered instead of doing the call.
	Err error
	// Hang: no answer until the caller's context ends.
	Hang bool
	// After: the call is done first, then Err or Hang hits: the response is lost.
	// Without Err and Hang the answer is Unavailable.
	After bool

	// DropEvent loses the event for every subscriber.
	DropEvent bool
	// DupEvent delivers it twice.
	DupEvent bool
	// DelayEvent delivers it later, so that events that follow pass by.
	DelayEvent time.Duration
}

// Rates are probabilities between 0 and 1, per call or per event.
type Rates struct {
	Err, Hang, LostResponse, Delay float64
	// MaxDelay bounds Delay and DelayEvent; one second when 0.
	MaxDelay                        time.Duration
	DropEvent, DupEvent, DelayEvent float64
	// Skip holds methods that are never hit.
	Skip map[string]bool
}

// RandomFaults returns Faults that follow from a seed. Each decision depends on the
// seed, the method, the subject of the request and how many such calls came before, not
// on the order in which unrelated goroutines happen to run.
func RandomFaults(seed int64, rates Rates) Faults {
	if rates.MaxDelay == 0 {
		rates.MaxDelay = time.Second
	}
	var mu sync.Mutex
	counts := map[string]int{}
	return func(_ context.Context, method string, req any) Fault {
		if rates.Skip[method] {
			return Fault{}
		}
		key := method + " " + Subject(req)
		mu.Lock()
		n := counts[key]
		counts[key]++
		mu.Unlock()
		rng := rand.New(rand.NewPCG(uint64(seed), hash(key, strconv.Itoa(n))))
		if method == "event" {
			return rates.event(rng)
		}
		return rates.call(rng, method)
	}
}

func (r Rates) call(rng *rand.Rand, method string) Fault {
	var f Fault
	if rng.Float64() < r.Delay {
		f.Delay = time.Duration(rng.Int64N(int64(r.MaxDelay)))
	}
	switch x := rng.Float64(); {
	case x < r.Err:
		f.Err = status.Errorf(codes.Unknown, "fault injected: %s failed", method)
	case x < r.Err+r.Hang:
		f.Hang = true
		f.After = rng.IntN(2) == 0
	case x < r.Err+r.Hang+r.LostResponse:
		f.After = true
	}
	return f
}

func (r Rates) event(rng *rand.Rand) Fault {
	var f Fault
	f.DropEvent = rng.Float64() < r.DropEvent
	f.DupEvent = rng.Float64() < r.DupEvent
	if rng.Float64() < r.DelayEvent {
		f.DelayEvent = time.Duration(rng.Int64N(int64(r.MaxDelay)))
	}
	return f
}

// Subject names what a request is about: a pod or container by name where the request
// has it, else the identifier or image in it; "" for requests about the whole runtime.
func Subject(req any) string {
	switch q := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		return sandboxName(q.GetConfig().GetMetadata())
	case *runtimeapi.CreateContainerRequest:
		return containerName(q.GetConfig().GetMetadata(), q.GetSandboxConfig().GetMetadata())
	case *runtimeapi.PullImageRequest:
		return q.GetImage().GetImage()
	case *runtimeapi.ImageStatusRequest:
		return q.GetImage().GetImage()
	case *runtimeapi.RemoveImageRequest:
		return q.GetImage().GetImage()
	case *runtimeapi.ContainerEventResponse:
		return q.GetContainerEventType().String() + " " + q.GetContainerId()
	case interface{ GetContainerId() string }:
		return q.GetContainerId()
	case interface{ GetPodSandboxId() string }:
		return q.GetPodSandboxId()
	}
	return ""
}

func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return h.Sum64()
}
