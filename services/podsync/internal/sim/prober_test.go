package sim

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// turn is what a probe says from a time after the container's start on.
type turn struct {
	after time.Duration
	ok    bool
}

// probeScript is what the probes of one container say. Liveness is of the first
// start only, and so is a startup that fails; later ones live.
type probeScript struct {
	startup, liveness, readiness []turn
}

// of is what a probe of the container says after so many restarts.
func (s probeScript) of(probe podsyncv1.ProbeType, attempt uint32) []turn {
	lives := []turn{{time.Second, true}}
	switch probe {
	case podsyncv1.ProbeType_PROBE_TYPE_STARTUP:
		if n := len(s.startup); n > 0 && !s.startup[n-1].ok && attempt > 0 {
			return lives
		}
		return s.startup
	case podsyncv1.ProbeType_PROBE_TYPE_LIVENESS:
		if attempt > 0 {
			return lives
		}
		return s.liveness
	default:
		return s.readiness
	}
}

// at is what stands at an age of the container, and when that changes next;
// known is false while nothing was found.
func at(turns []turn, age time.Duration) (known, ok bool, next time.Duration) {
	for _, t := range turns {
		if t.after > age {
			return known, ok, t.after
		}
		known, ok = true, t.ok
	}
	return known, ok, 0
}

// prober stands in for the probes process: it follows the targets and reports
// what the scripts say.
type prober struct {
	w *world

	mu    sync.Mutex
	end   context.CancelFunc // of the stream that is open; nil when none is
	pause time.Duration      // before the next stream
	delay time.Duration      // of every result
}

// restart kills the probes process; the next one comes after a pause and knows
// nothing.
func (p *prober) restart(pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause = pause
	if p.end != nil {
		p.end()
	}
}

// late lets every result take so long.
func (p *prober) late(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

// open begins a stream.
func (p *prober) open(ctx context.Context) (context.Context, context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, p.end = context.WithCancel(ctx)
	return ctx, p.end
}

func (p *prober) now() (pause, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pause, p.delay
}

// registrar hands the service that is registered to the prober.
type registrar func(impl any)

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if desc.ServiceName == podsyncv1.PodSyncService_ServiceDesc.ServiceName {
		r(impl)
	}
}

// follow keeps a stream open while podsync lives.
func (p *prober) follow(ctx context.Context, impl any) {
	for ctx.Err() == nil {
		stream, end := p.open(ctx)
		s := &probeStream{p: p, ctx: stream, poke: make(chan struct{}, 1), targets: map[probeKey]*podsyncv1.ProbeTarget{}, sent: map[probeKey]sent{}}
		_ = impl.(podsyncv1.PodSyncServiceServer).SyncProbes(s)
		end()
		pause, _ := p.now()
		sleep(ctx, max(pause, time.Millisecond))
	}
}

// sleep lets time pass until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

type probeKey struct {
	uid, container string
	probe          podsyncv1.ProbeType
}

type sent struct {
	container string
	ok        bool
}

// probeStream is the prober's end of one stream.
type probeStream struct {
	grpc.ServerStream
	p    *prober
	ctx  context.Context
	poke chan struct{}

	mu      sync.Mutex
	targets map[probeKey]*podsyncv1.ProbeTarget
	sent    map[probeKey]sent
}

func keyOf(k *podsyncv1.ProbeKey) probeKey {
	return probeKey{k.GetPodUid(), k.GetContainer(), k.GetType()}
}

func (s *probeStream) Context() context.Context { return s.ctx }

// Send takes targets in.
func (s *probeStream) Send(frame *podsyncv1.SyncProbesResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if frame.GetSnapshot() {
		clear(s.targets)
	}
	for _, t := range frame.GetTargets() {
		key := keyOf(t.GetKey())
		if old := s.targets[key]; old == nil || old.GetContainerId() != t.GetContainerId() {
			delete(s.sent, key)
		}
		s.targets[key] = t
	}
	for _, k := range frame.GetRemoved() {
		delete(s.targets, keyOf(k))
		delete(s.sent, keyOf(k))
	}
	select {
	case s.poke <- struct{}{}:
	default:
	}
	return nil
}

// Recv gives the results that are new.
func (s *probeStream) Recv() (*podsyncv1.SyncProbesRequest, error) {
	for {
		results, next := s.due()
		if len(results) > 0 {
			if _, delay := s.p.now(); delay > 0 {
				sleep(s.ctx, delay)
			}
			s.p.w.judge.told(results)
			return &podsyncv1.SyncProbesRequest{Epoch: 1, Results: results}, nil
		}
		var alarm <-chan time.Time
		if next > 0 {
			t := time.NewTimer(next)
			defer t.Stop()
			alarm = t.C
		}
		select {
		case <-s.poke:
		case <-alarm:
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		}
	}
}

// due are the results that have changed, and how long it is to the next change.
func (s *probeStream) due() (results []*podsyncv1.ProbeResult, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, t := range s.targets {
		if started := t.GetStarted(); started == (key.probe == podsyncv1.ProbeType_PROBE_TYPE_STARTUP) {
			continue
		}
		known, ok, change := s.p.outcome(key, t.GetContainerId(), t.GetPod().GetName(), t.GetContainerStartTime().AsTime())
		if change > 0 && (next == 0 || change < next) {
			next = change
		}
		if now := (sent{t.GetContainerId(), ok}); known && s.sent[key] != now {
			s.sent[key] = now
			outcome := podsyncv1.ProbeOutcome_PROBE_OUTCOME_FAILURE
			if ok {
				outcome = podsyncv1.ProbeOutcome_PROBE_OUTCOME_SUCCESS
			}
			results = append(results, &podsyncv1.ProbeResult{Key: t.GetKey(), ContainerId: t.GetContainerId(), Outcome: outcome, Message: "as scripted"})
			s.p.w.judge.probed(key, ok)
		}
	}
	return results, next
}

// outcome is what a probe says now of a container, and how long that holds.
func (p *prober) outcome(key probeKey, id, pod string, started time.Time) (known, ok bool, change time.Duration) {
	sub := p.w.subject(pod)
	if sub == nil {
		return false, false, 0
	}
	turns := sub.probes[key.container].of(key.probe, p.w.judge.attempt(id))
	age := time.Since(started)
	known, ok, next := at(turns, age)
	if next > 0 {
		change = next - age
	}
	return known, ok, change
}

// ready is what readiness and startup say now of a running container.
func (s *subject) ready(c *v1.Container, attempt uint32, age time.Duration) bool {
	script := s.probes[c.Name]
	if c.StartupProbe != nil {
		if _, ok, _ := at(script.of(podsyncv1.ProbeType_PROBE_TYPE_STARTUP, attempt), age); !ok {
			return false
		}
	}
	if c.ReadinessProbe == nil {
		return true
	}
	_, ok, _ := at(script.readiness, age)
	return ok
}
