// Package shutdown ends the node's pods when the machine goes down: the cheapest first,
// each group with its own time, and says when that is done.
//
// It owns the order and the time. It must never hold a lock of logind's, nor touch a
// container: podsync ends pods.
// Source: KEP-2000, KEP-2712.
package shutdown

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// What pods are ended with, in the kubelet's words.
const (
	Reason  = "Terminated"
	Message = "Pod was terminated in response to imminent node shutdown."
)

// toldWait is how long it is waited at most for the apiserver to hear of the pods' ends.
const toldWait = 10 * time.Second

// unheardWait is how long it is waited for the first Signal before pods are admitted
// again that a run before this one may have had refused.
const unheardWait = 10 * time.Second

// Signal is what is known of the machine's shutdown.
type Signal struct {
	// Since is when it began; zero: there is none.
	Since time.Time
	// Began is the same on a clock that nobody sets; zero when that is not known.
	Began time.Time
	// Delay is how long it can be delayed; zero when that is not known.
	Delay time.Duration
}

// Line tells of shutdowns, and takes that the node is done with one.
type Line interface {
	// Run has told called with each Signal until ctx is done.
	Run(ctx context.Context, told func(Signal)) error
	// Done lets the shutdown that began at since go on.
	Done(since time.Time)
}

// Pod is one of the node's.
type Pod struct {
	UID, Namespace, Name string
	Priority             int32
	// Ended is whether nothing of it runs any more.
	Ended bool
}

// Mounted are pods that have ended and still have volumes.
type Mounted struct {
	UIDs []string
	// Unnamed are how many there are of which an older podsync does not say which.
	Unnamed int
}

// Pods are podsync's.
type Pods interface {
	// Close has no pod admitted any more, and saw called with the pods at first and after
	// each change, until ctx is done. fresh: podsync may have been started anew. Not
	// whole: it was just started, and may have more pods than it names.
	Close(ctx context.Context, saw func(pods []Pod, fresh, whole bool)) error
	// Open has pods admitted again.
	Open(ctx context.Context) error
	// Stop has a pod ended within a time. False: podsync does not, and never will.
	Stop(ctx context.Context, pod Pod, grace time.Duration) (stops bool, err error)
	// Mounted are the pods that have ended and still have volumes.
	Mounted(ctx context.Context) (Mounted, error)
	// Untold are how many pods' ends the apiserver has not heard of.
	Untold(ctx context.Context) (int, error)
}

// Deps is what a Manager is given.
type Deps struct {
	Line Line
	Pods Pods
	// Events takes what happens to the Node.
	Events interface {
		Send(ctx context.Context, e node.Event)
	}
	// SetNode says on the Node whether it goes down.
	SetNode func(shuttingDown bool)
}

// Manager ends pods. Run runs once.
type Manager struct {
	groups []Group
	deps   Deps
}

// New returns a Manager for groups in order; it starts nothing.
func New(groups []Group, deps Deps) *Manager { return &Manager{groups: groups, deps: deps} }

// Run follows the machine until ctx is done; then it returns nil.
func (m *Manager) Run(ctx context.Context) error {
	signals := make(chan Signal)
	var following sync.WaitGroup
	defer following.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	following.Go(func() {
		_ = m.deps.Line.Run(ctx, func(s Signal) { // It ends with ctx.
			select {
			case signals <- s:
			case <-ctx.Done():
			}
		})
	})
	var now Signal
	heard, stop := false, func() {}
	defer func() { stop() }()
	// What a run before this one has closed stays so until it is known that nothing goes
	// down; whoever would say so may be away for good.
	unheard := time.NewTimer(unheardWait)
	defer unheard.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-unheard.C:
			if !heard {
				m.deps.SetNode(false)
				heard, stop = true, m.open(ctx)
			}
		case s := <-signals:
			if !heard && s.Since.IsZero() {
				m.deps.SetNode(false)
				stop = m.open(ctx)
			}
			heard = true
			if s.Since.Equal(now.Since) {
				continue
			}
			stop()
			now = s
			if s.Since.IsZero() {
				m.deps.Events.Send(ctx, node.Event{Type: v1.EventTypeNormal, Reason: "Shutdown", Message: "Shutdown manager detected shutdown cancellation"})
				m.deps.SetNode(false)
				stop = m.open(ctx)
				continue
			}
			m.deps.Events.Send(ctx, node.Event{Type: v1.EventTypeNormal, Reason: "Shutdown", Message: "Shutdown manager detected shutdown event"})
			m.deps.SetNode(true)
			stop = m.during(ctx, func(ctx context.Context) { m.goDown(ctx, s) })
		}
	}
}

// during runs something until it ends or stop, which waits for that.
func (m *Manager) during(parent context.Context, run func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(parent)
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// open has pods admitted, until podsync has heard: it may have been told otherwise by a
// forerunner.
func (m *Manager) open(ctx context.Context) (stop func()) {
	return m.during(ctx, func(ctx context.Context) {
		retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.2})
		for m.deps.Pods.Open(ctx) != nil {
			if retry.Wait(ctx) != nil {
				return
			}
		}
	})
}

// goDown ends the pods of a shutdown, group by group.
func (m *Manager) goDown(parent context.Context, s Signal) {
	ctx, cancel := context.WithCancel(parent)
	seen := newView()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = m.deps.Pods.Close(ctx, seen.set) }) // It ends with ctx.
	began := s.Began
	if began.IsZero() {
		began = s.Since
	}
	groups := shortened(m.groups, s.Delay)
	deadline := began.Add(Total(groups))
	if !seen.await(ctx, deadline) && ctx.Err() == nil {
		klog.FromContext(ctx).Info("podsync does not say which pods there are: none is ended before the machine goes down")
	}
	stopper := newStopper(m.deps.Pods)
	for i, g := range groups {
		if ctx.Err() != nil {
			return
		}
		until := time.Now().Add(g.Period)
		if latest := deadline.Add(-Total(groups[i+1:])); until.After(latest) {
			until = latest // What time was lost is no later group's.
		}
		stopper.end(ctx, seen, groups, i, until)
		m.awaitUnmounted(ctx, until, func(uid string) bool {
			priority, known := seen.priority(uid)
			return !known || groupOf(groups, priority) == i
		})
	}
	m.awaitTold(ctx, seen, stopper, deadline)
	if ctx.Err() == nil {
		klog.FromContext(ctx).Info("The pods have ended, or their time is over: the machine may go down", "took", time.Since(began))
		m.deps.Line.Done(s.Since)
		<-ctx.Done() // New pods are refused until the end.
	}
}

// lookAgain is between two questions whether volumes are taken down.
const lookAgain = 250 * time.Millisecond

// awaitUnmounted waits until the volumes of the pods of a group that have ended are taken
// down, for the next group may have who takes them down. Those of an earlier group have had
// their time: what cannot be taken down takes no other group's.
// Source: https://github.com/kubernetes/kubernetes/issues/115148
func (m *Manager) awaitUnmounted(parent context.Context, until time.Time, of func(uid string) bool) {
	ctx, cancel := context.WithDeadline(parent, until)
	defer cancel()
	for {
		all, err := m.deps.Pods.Mounted(ctx)
		mounted := all.Unnamed + len(slices.DeleteFunc(slices.Clone(all.UIDs), func(uid string) bool { return !of(uid) }))
		if err == nil && mounted == 0 {
			return
		}
		select {
		case <-ctx.Done():
			if parent.Err() == nil {
				klog.FromContext(parent).Info("The time of the pods of a priority is over, though volumes are not taken down", "pods", mounted, "err", err)
			}
			return
		case <-time.After(lookAgain):
		}
	}
}

// awaitTold waits until the apiserver has heard of the pods' ends, but not for long: it
// may have been one of them. What podsync has started again meanwhile ends again.
// Source: https://github.com/kubernetes/kubernetes/issues/124448
func (m *Manager) awaitTold(parent context.Context, seen *view, stopper *stopper, deadline time.Time) {
	ctx, cancel := context.WithDeadline(parent, deadline)
	defer cancel()
	ctx, cancelWait := context.WithTimeout(ctx, toldWait)
	defer cancelWait()
	for {
		now := seen.get()
		stopper.endAgain(ctx, now, func(Pod) bool { return true }, toldWait)
		untold, err := m.deps.Pods.Untold(ctx)
		if err == nil && untold == 0 && now.whole && stopper.lateRunning(now) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			if parent.Err() == nil {
				klog.FromContext(parent).Info("The machine goes down before the apiserver has heard of all pods' ends; it hears of them after the next start", "pods", untold, "err", err)
			}
			return
		case <-now.changed:
		case <-time.After(time.Second): // The safety net: what is acknowledged changes the pod.
		}
	}
}
