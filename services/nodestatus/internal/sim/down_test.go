package sim

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/nodeshutdown"
	"github.com/polylet/polylet/services/nodestatus"
)

// down is a shutdown of the machine, which can be delayed for a time; zero: it is not known
// for how long. off is when it was called off, done when nodestatus has let it go on: the
// machine is off then.
type down struct {
	since     time.Time
	delay     time.Duration
	off, done time.Time
}

// line is what tells a run of nodestatus of shutdowns.
type line struct {
	w   *world
	run *run
}

func (l *line) Run(ctx context.Context, told func(nodeshutdown.State, error)) error {
	for first, last := true, (time.Time{}); ; first = false {
		l.w.mu.Lock()
		var s nodeshutdown.State
		if d := l.w.down; d != nil && d.off.IsZero() {
			s = nodeshutdown.State{Since: d.since, Elapsed: time.Since(d.since), Delay: d.delay}
		}
		changed := l.w.changed
		l.w.mu.Unlock()
		if first || !s.Since.Equal(last) {
			last = s.Since
			told(s, nil)
			if shot := l.w.sabotage; shot != nil && shot.hasty && !s.Since.IsZero() {
				l.Done(s.Since)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// Done is the end of the machine.
func (l *line) Done(since time.Time) {
	if shot := l.w.sabotage; l.run.dead() || shot != nil && shot.deaf {
		return
	}
	l.w.set(func() {
		l.w.judge.doneLocked(since)
		if d := l.w.down; d != nil && d.off.IsZero() {
			d.done = time.Now()
			l.w.tell("OFF")
			l.run.kill()
		}
	})
}

// goingLocked says whether the machine goes down.
func (w *world) goingLocked() bool { return w.down != nil && w.down.off.IsZero() }

// offLocked says whether the machine is off.
func (w *world) offLocked() bool { return w.down != nil && !w.down.done.IsZero() }

// shutLocked has the machine go down; callOff has it stay after all.
func (w *world) shutLocked(delay time.Duration) {
	if !w.goingLocked() {
		w.down = &down{since: time.Now(), delay: delay}
		w.judge.begunLocked()
		w.tell("GOES DOWN", delay)
	}
}

func (w *world) callOffLocked() {
	if w.goingLocked() && !w.offLocked() {
		w.down.off = time.Now()
		w.tell("CALLED OFF")
	}
}

func (w *world) setShutdown(r *podsyncv1.SetShutdownRequest) *podsyncv1.SetShutdownResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = r.GetActive()
	out := &podsyncv1.SetShutdownResponse{PodsKnown: !time.Now().Before(w.partialUntil)}
	for _, p := range w.podsLocked() {
		if p.listed && !p.alive && w.machine.uses[p.name].volumeThere() {
			out.UidsWithVolumes = append(out.UidsWithVolumes, p.uid())
		}
	}
	out.PodsWithVolumes = uint32(len(out.UidsWithVolumes))
	return out
}

func (w *world) listPods() *podsapi.ListPodsResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := &podsapi.ListPodsResponse{}
	for _, p := range w.podsLocked() {
		if !p.listed {
			continue
		}
		object := p.object.DeepCopy()
		if !p.alive {
			object.Status.Phase = v1.PodFailed
		}
		data, err := object.Marshal()
		w.must(err)
		out.Pods = append(out.Pods, data)
	}
	return out
}

// goesDown draws a shutdown of the machine, if there is one, and says when.
func (m *maker) goesDown() (at []time.Duration) {
	if m.rng.IntN(3) == 0 {
		return nil
	}
	m.groups = pick(m,
		nodestatus.ShutdownGroups(nil, 30*time.Second, 10*time.Second),
		nodestatus.ShutdownGroups([]nodestatus.ShutdownGroup{{Priority: 0, Period: 20 * time.Second}, {Priority: 5, Period: 15 * time.Second}, {Priority: 2_000_000_000, Period: 10 * time.Second}}, 0, 0),
		nodestatus.ShutdownGroups([]nodestatus.ShutdownGroup{{Priority: 0, Period: 3 * time.Second}, {Priority: 1000, Period: time.Minute}}, 0, 0),
	)
	if m.rng.IntN(2) == 0 {
		when, off := m.when(), time.Duration(m.some(uint64(40*time.Second)))
		m.shuts(when)
		m.add(when+off, fmt.Sprintf("the shutdown is called off after %s", off), func(w *world) { w.set(w.callOffLocked) })
		at = append(at, when)
	}
	if m.rng.IntN(2) == 0 {
		when := m.noisy/2 + m.when()/2
		m.shuts(when)
		at = append(at, when)
	}
	return at
}

func (m *maker) shuts(when time.Duration) {
	delay := pick(m, 0, time.Hour, 15*time.Second)
	m.add(when, "the machine goes down", func(w *world) { w.set(func() { w.shutLocked(delay) }) })
}
