package prober

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// hanging is a Runner whose attempts end when it is told, and all else that an
// Engine needs.
type hanging struct {
	mu       sync.Mutex
	inFlight int
	most     int
	over     chan struct{}
}

func (h *hanging) Run(ctx context.Context, _ probe.Target) probe.Answer {
	h.mu.Lock()
	h.inFlight++
	h.most = max(h.most, h.inFlight)
	h.mu.Unlock()
	select {
	case <-h.over:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inFlight--
	return probe.Answer{Verdict: probe.Passed}
}

func (*hanging) Hold(probe.Result, bool)                            {}
func (*hanging) Drop(probe.Key)                                     {}
func (*hanging) Event(probe.Event)                                  {}
func (*hanging) Attempt(probe.Target, probe.Verdict, time.Duration) {}
func (*hanging) Forget(probe.Target)                                {}

func targets(from, to int, edit func(*probe.Target)) (list []probe.Target) {
	for i := from; i < to; i++ {
		t := probe.Target{
			Key: probe.Key{PodUID: fmt.Sprint(i), Container: "c", Type: probe.Readiness}, Namespace: "ns", ContainerID: "a", Started: true,
			Period: time.Second, Timeout: time.Hour, SuccessThreshold: 1, FailureThreshold: 3, Handler: probe.TCPSocket{Port: 1},
		}
		if edit != nil {
			edit(&t)
		}
		list = append(list, t)
	}
	return list
}

// TestThoseThatWaitForAPlaceGetOneWhateverBecomesOfTheOthers: of the probes that wait
// some go, some are not to be run any more and some are put off before there is a
// place for them.
func TestThoseThatWaitForAPlaceGetOneWhateverBecomesOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{over: make(chan struct{})}
		e := New(h, h, h)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		all := targets(0, mostOfOne+40, nil)
		e.Apply(all, nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if h.inFlight != mostOfOne {
			t.Fatalf("%d attempts are in flight, want %d", h.inFlight, mostOfOne)
		}
		e.mu.Lock()
		var waiting []probe.Target
		for _, p := range e.shares.waiting["ns"] {
			waiting = append(waiting, p.state.Target())
		}
		var inFlight []probe.Key
		for key, p := range e.probes {
			if p.cancel != nil {
				inFlight = append(inFlight, key)
			}
		}
		e.mu.Unlock()
		if len(waiting) != 40 || len(inFlight) != mostOfOne {
			t.Fatalf("%d wait, %d are in flight", len(waiting), len(inFlight))
		}
		for range 3 { // each is still among those that wait
			for i := 10; i < 20; i++ {
				waiting[i].Started = false
			}
			for i := 20; i < 30; i++ {
				waiting[i].Period = 24 * time.Hour
				waiting[i].InitialDelay = 12 * time.Hour
			}
			e.Apply(waiting[10:30], nil)
		}
		var gone []probe.Key
		for _, target := range waiting[:10] {
			gone = append(gone, target.Key)
		}
		e.Apply(nil, gone)
		// What is in flight is given up: places for the last ten.
		e.Apply(nil, inFlight)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if h.inFlight != 10 || h.most != mostOfOne {
			t.Errorf("%d attempts are in flight, want those ten that are due; %d were at most", h.inFlight, h.most)
		}
		close(h.over)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(e.shares.busy)+len(e.shares.waiting) != 0 {
			t.Errorf("after the end %v count as busy, %d namespaces wait", e.shares.busy, len(e.shares.waiting))
		}
	})
}

// TestAPlaceThatItsProbeNoLongerTakesGoesToAnother: between the end of an attempt and
// the start of the next one, that one's probe may go, or be put off.
func TestAPlaceThatItsProbeNoLongerTakesGoesToAnother(t *testing.T) {
	for name, loses := range map[string]func(e *Engine, t probe.Target){
		"it goes":       func(e *Engine, t probe.Target) { e.Apply(nil, []probe.Key{t.Key}) },
		"it is put off": func(e *Engine, t probe.Target) { t.Started = false; e.Apply([]probe.Target{t}, nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &hanging{over: make(chan struct{})}
			e := New(h, h, h)
			ctx, cancel := context.WithCancel(t.Context())
			launch := func() {
				for range 2 * mostOfOne {
					if wait, any := e.launch(ctx); any {
						time.Sleep(wait)
					}
				}
				synctest.Wait()
			}
			e.Apply(targets(0, mostOfOne+2, nil), nil)
			launch()
			var waiting []*entry
			var ends probe.Key
			e.mu.Lock()
			waiting = append(waiting, e.shares.waiting["ns"]...)
			for key, p := range e.probes {
				if p.cancel != nil {
					ends = key
				}
			}
			e.mu.Unlock()
			if h.inFlight != mostOfOne || len(waiting) != 2 {
				t.Fatalf("%s: %d attempts are in flight and %d wait", name, h.inFlight, len(waiting))
			}
			e.Apply(nil, []probe.Key{ends})
			synctest.Wait() // its place is the first's of those that wait
			loses(e, waiting[0].state.Target())
			launch()
			if h.inFlight != mostOfOne {
				t.Errorf("%s: %d attempts are in flight, want %d", name, h.inFlight, mostOfOne)
			}
			close(h.over)
			cancel()
			e.running.Wait()
		})
	}
}

// TestProbesOfAFewNamespacesLeaveTheNodeItsMemoryAndOthersTheirs: a tenant may have many
// namespaces, and the servers of all of them may hang and send much.
func TestProbesOfAFewNamespacesLeaveTheNodeItsMemoryAndOthersTheirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{over: make(chan struct{})}
		e := New(h, h, h)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		of := func(namespace string, n int) []probe.Target {
			return targets(0, n, func(t *probe.Target) { t.Namespace, t.Key.PodUID = namespace, namespace+t.Key.PodUID })
		}
		busy := func() string {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			e.mu.Lock()
			defer e.mu.Unlock()
			return fmt.Sprint(e.shares.busy)
		}
		for _, namespace := range []string{"a", "b", "c"} {
			e.Apply(of(namespace, 2*mostOfOne), nil)
			busy()
		}
		if got, want := busy(), "map[a:256 b:64 c:16]"; got != want {
			t.Fatalf("in flight are %s, want %s", got, want)
		}
		e.Apply(of("ours", kept+4), nil)
		if got, want := busy(), "map[a:256 b:64 c:16 ours:16]"; got != want {
			t.Errorf("in flight are %s, want %s", got, want)
		}
		// Those of one go: it wants no places, and those who have fewest get them.
		var gone []probe.Key
		for _, target := range of("a", 2*mostOfOne) {
			gone = append(gone, target.Key)
		}
		e.Apply(nil, gone)
		if got, want := busy(), "map[b:64 c:236 ours:20]"; got != want {
			t.Errorf("in flight are %s, want %s", got, want)
		}
		close(h.over)
		busy()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(e.shares.busy)+len(e.shares.waiting)+e.shares.all != 0 {
			t.Errorf("after the end %v count as busy, %d in all", e.shares.busy, e.shares.all)
		}
	})
}
