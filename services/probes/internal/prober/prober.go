// Package prober runs the probes: it owns the set of targets, one timer for all
// of them and one goroutine per attempt in flight. It must never decide whether
// a probe passed (handler does) or what that changes (probestate does), and it
// does nothing at all while there is nothing to probe.
package prober

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/probes/internal/probe"
	"github.com/polylet/polylet/services/probes/internal/probestate"
)

// Runner makes one attempt. It keeps to the target's timeout and to ctx.
type Runner interface {
	Run(ctx context.Context, t probe.Target) probe.Answer
}

// Sink takes what attempts changed. Its methods must not block.
type Sink interface {
	// Hold takes the outcome that stands; send says whether podsync does not
	// know it yet.
	Hold(r probe.Result, send bool)
	// Drop forgets a probe that is gone.
	Drop(k probe.Key)
	// Event takes something that belongs into an Event on the pod.
	Event(e probe.Event)
}

// Meter counts attempts. Its methods must not block.
type Meter interface {
	Attempt(t probe.Target, v probe.Verdict, took time.Duration)
	// Forget drops the series of a probe that is gone.
	Forget(t probe.Target)
}

// Engine is safe for concurrent use. See New.
type Engine struct {
	runner Runner
	sink   Sink
	meter  Meter
	wake   wake.Signal

	mu      sync.Mutex
	probes  map[probe.Key]*entry
	parked  map[probe.Key]parked
	queue   queue
	pace    pace
	shares  shares
	running sync.WaitGroup
}

// entry is one probe of one container id.
type entry struct {
	state  probestate.State
	cancel context.CancelFunc // of the attempt in flight, else nil
	gone   bool
	waits  bool // among those of its namespace that wait; see shares
	// promised says that a place was given to it.
	promised bool

	lastAttempt time.Time
	lastOK      bool
	message     string

	due   time.Time
	tick  bool
	index int // in the queue; -1 outside
}

// New returns an Engine without targets. It starts nothing.
func New(runner Runner, sink Sink, meter Meter) *Engine {
	return &Engine{
		runner: runner, sink: sink, meter: meter,
		wake:   wake.New(),
		probes: map[probe.Key]*entry{},
		parked: map[probe.Key]parked{},
		shares: newShares(),
	}
}

// Replace makes targets the whole set. Probes whose container id stays go on
// as they are; those that are missing are parked.
func (e *Engine) Replace(targets []probe.Target) {
	keep := make(map[probe.Key]struct{}, len(targets))
	for _, t := range targets {
		keep[t.Key] = struct{}{}
	}
	e.mu.Lock()
	now := time.Now()
	for k, p := range e.probes {
		if _, ok := keep[k]; !ok {
			e.park(p, now)
		}
	}
	e.apply(targets, nil)
	for _, t := range targets {
		e.agree(e.probes[t.Key])
	}
	e.mu.Unlock()
	e.poke()
}

// Apply changes part of the set.
func (e *Engine) Apply(changed []probe.Target, removed []probe.Key) {
	e.mu.Lock()
	e.apply(changed, removed)
	e.mu.Unlock()
	e.poke()
}

// Len returns the number of targets.
func (e *Engine) Len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.probes)
}

func (e *Engine) apply(changed []probe.Target, removed []probe.Key) {
	now := time.Now()
	e.unparkOld(now)
	for _, k := range removed {
		if p, ok := e.probes[k]; ok {
			e.remove(p)
			e.sink.Drop(k)
			e.meter.Forget(p.state.Target())
		}
		e.unparkKey(k)
	}
	for _, t := range changed {
		p, ok := e.probes[t.Key]
		if ok && p.state.Target().ContainerID == t.ContainerID {
			p.state = p.state.Update(t, now)
			e.arm(p)
			e.fill(t.Namespace, now)
			continue
		}
		if ok {
			e.remove(p)
			e.sink.Drop(t.Key)
		}
		e.add(t, now)
	}
}

func (e *Engine) add(t probe.Target, now time.Time) {
	p := e.unpark(t, now)
	if p == nil {
		p = &entry{state: probestate.Begin(t, now), index: -1}
	}
	e.probes[t.Key] = p
	e.agree(p)
	e.arm(p)
}

// agree has the sink hold what stands, and send it where podsync holds
// something else: a podsync that has just been started may have heard of the
// result before it knew the container.
func (e *Engine) agree(p *entry) {
	t := p.state.Target()
	r := resultOf(p.state, p.message)
	if r.Outcome == probe.Unknown && r.Count == (probe.Count{}) {
		return
	}
	e.sink.Hold(r, r.Outcome != t.LastOutcome || r.Count != t.LastCount)
}

// resultOf is how a probe stands, for podsync.
func resultOf(s probestate.State, message string) probe.Result {
	t := s.Target()
	outcome, since := s.Outcome()
	return probe.Result{Key: t.Key, ContainerID: t.ContainerID, Outcome: outcome, Time: since, Message: message, Count: s.Count()}
}

func (e *Engine) remove(p *entry) {
	p.gone = true
	e.shares.take(p)
	if p.cancel != nil {
		p.cancel()
	}
	if p.index >= 0 {
		heap.Remove(&e.queue, p.index)
	}
	delete(e.probes, p.state.Target().Key)
	e.fill(p.state.Target().Namespace, time.Now())
}

// arm puts the probe into the queue at its next attempt, or takes it out.
func (e *Engine) arm(p *entry) {
	e.shares.take(p)
	at, tick, ok := p.state.Next()
	if !ok || p.cancel != nil {
		if p.index >= 0 {
			heap.Remove(&e.queue, p.index)
		}
		return
	}
	p.due, p.tick = at, tick
	if p.index >= 0 {
		heap.Fix(&e.queue, p.index)
		return
	}
	heap.Push(&e.queue, p)
}

// Run makes the attempts until ctx is done, and returns when all ended.
func (e *Engine) Run(ctx context.Context) error {
	defer e.running.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait, any := e.launch(ctx); any {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-e.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// launch starts the attempts that are due, and returns how long until the next.
func (e *Engine) launch(ctx context.Context) (wait time.Duration, any bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for len(e.queue) > 0 {
		p := e.queue[0]
		if p.due.After(now) {
			return p.due.Sub(now), true
		}
		target, tick := p.state.Target(), p.tick
		if e.shares.full(p, target) {
			e.shares.take(p)
			heap.Pop(&e.queue)
			continue
		}
		if wait := e.pace.take(now, len(e.probes)); wait > 0 {
			return wait, true
		}
		heap.Pop(&e.queue)
		e.shares.take(p)
		attempt, cancel := context.WithCancel(ctx)
		p.cancel = cancel
		e.shares.begin(target)
		e.running.Go(func() {
			defer cancel()
			started := time.Now()
			answer := e.attempt(attempt, target)
			e.finish(ctx, p, tick, answer, time.Since(started))
		})
	}
	return 0, false
}

// attempt tries up to three times when the probe cannot be run at all.
func (e *Engine) attempt(ctx context.Context, t probe.Target) probe.Answer {
	const tries = 3
	for i := 1; ; i++ {
		answer := e.runner.Run(ctx, t)
		if answer.Verdict != probe.Errored || i == tries || ctx.Err() != nil {
			answer.Message = clip(answer.Message)
			return answer
		}
	}
}

func (e *Engine) finish(ctx context.Context, p *entry, tick bool, a probe.Answer, took time.Duration) {
	e.mu.Lock()
	p.cancel = nil
	now := time.Now()
	e.ended(p.state.Target(), now)
	if p.gone || ctx.Err() != nil {
		e.mu.Unlock()
		e.poke()
		return
	}
	counted := p.state.Count()
	next, changed := p.state.Observe(a.Verdict, tick, now)
	p.state = next
	p.lastAttempt, p.message = now, a.Message
	p.lastOK = a.Verdict == probe.Passed || a.Verdict == probe.Warned
	t := next.Target()
	if changed || next.Count() != counted {
		e.sink.Hold(resultOf(next, a.Message), true)
	}
	// An early attempt is a peek: that it failed is no news.
	if tick || p.lastOK {
		e.meter.Attempt(t, a.Verdict, took)
		if event, ok := eventOf(t, a); ok {
			e.sink.Event(event)
		}
	}
	e.arm(p)
	e.mu.Unlock()
	e.poke()
	if changed {
		logChange(ctx, t, next, a)
	}
}

func logChange(ctx context.Context, t probe.Target, s probestate.State, a probe.Answer) {
	outcome, _ := s.Outcome()
	log := klog.FromContext(ctx).WithValues("pod", klog.KRef(t.Namespace, t.Name),
		"container", t.Key.Container, "type", t.Key.Type.String(), "outcome", outcome.String())
	log.Info("Probe outcome changed")
	// It is the container's own output, or has the command or the URL in it.
	log.V(4).Info("What the probe got for an answer", "message", a.Message)
}

func (e *Engine) poke() {
	e.wake.Set()
}
