// Package status keeps the Node object true: it registers the Node, computes
// its status whenever a fact, the Node or the time asks for it, and writes
// what changed at once.
//
// It owns the present Node; everything else is told to it. It never flips a
// condition without a fresh fact, so a restart of this process, or of a peer,
// is not seen from outside.
package status

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/nodestatus/internal/apiserver"
	"github.com/polylet/polylet/services/nodestatus/internal/event"
	"github.com/polylet/polylet/services/nodestatus/internal/judge"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
	"github.com/polylet/polylet/services/nodestatus/internal/peer"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

const (
	// factsTimeout is how long registration waits for the peers' first facts.
	factsTimeout = 5 * time.Second
	// attempts is how often a status is sent at one time.
	attempts = 5
)

// Config says how the Node is kept.
type Config struct {
	// Node is what it is configured to be.
	Node node.Config
	// Register is whether the Node is created when it is not there.
	Register bool
	// UpdateFrequency is between two looks at everything; ReportFrequency
	// between two reports when nothing changed.
	UpdateFrequency, ReportFrequency time.Duration
	// StartEvents are sent after the one that says that the node starts.
	StartEvents []node.Event
}

// Deps is what a Keeper is given.
type Deps struct {
	// API is nil without an apiserver.
	API *apiserver.Node
	// Store has the facts.
	Store *peer.Store
	// Judge says which pressures there are.
	Judge *judge.Judge
	// Events takes what happened to the Node.
	Events *event.Sender
	// Health is told of the apiserver.
	Health health.Reporter
	// Metrics is told of the start; nil is told nothing.
	Metrics *Metrics
	// OnRepeatedFailure is called when a report failed twice in a row.
	OnRepeatedFailure func()
	// Saw is told of the Node as the apiserver has it, and must return at once; nil is told
	// nothing.
	Saw func(*v1.Node)
}

// View is how the Node stands.
type View struct {
	// Node must not be changed; nil before the first.
	Node *v1.Node
	// Registered is whether the apiserver has it.
	Registered bool
	// LastReport is when the apiserver last took the status; zero is never.
	LastReport time.Time
	// LastError is why the last attempt failed; empty when it did not.
	LastError string
}

// Keeper keeps the Node. Safe for concurrent use; Run runs once.
type Keeper struct {
	cfg  Config
	deps Deps

	mu   sync.Mutex
	view View

	// The rest belongs to Run's goroutine.
	node     *v1.Node
	reportAt time.Time
	retry    *backoff.Backoff
	failures int
	// unmended is whether the labels could not be put back the last time.
	unmended bool
}

// New returns a Keeper; it starts nothing.
func New(cfg Config, deps Deps) *Keeper {
	return &Keeper{cfg: cfg, deps: deps, retry: backoff.New(backoff.Config{Initial: 500 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.2})}
}

// View returns how the Node stands.
func (k *Keeper) View() View {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.view
}

// UID returns the Node's UID, empty before it is registered.
func (k *Keeper) UID() types.UID {
	if v := k.View(); v.Node != nil {
		return v.Node.UID
	}
	return ""
}

// Addresses returns those that the Node has.
func (k *Keeper) Addresses() []v1.NodeAddress {
	if v := k.View(); v.Node != nil {
		return v.Node.Status.Addresses
	}
	return nil
}

func (k *Keeper) publish(change func(*View)) {
	k.mu.Lock()
	change(&k.view)
	now := k.view
	k.mu.Unlock()
	if k.deps.Saw != nil && now.Registered && now.Node != nil {
		k.deps.Saw(now.Node)
	}
}

// Run keeps the Node until ctx is done. It returns an error only when the
// configuration cannot work on this machine.
func (k *Keeper) Run(ctx context.Context) error {
	k.awaitFacts(ctx)
	if err := k.checkReservation(); err != nil {
		return err
	}
	k.deps.Events.Send(ctx, node.Event{Type: v1.EventTypeNormal, Reason: "Starting", Message: "Starting kubelet."})
	for _, e := range k.cfg.StartEvents {
		k.deps.Events.Send(ctx, e)
	}
	if k.deps.API == nil {
		known := k.deps.Store.Get()
		k.node, _ = node.New(k.cfg.Node, known, time.Now())
		return k.loop(ctx, nil)
	}
	if !k.register(ctx) {
		return nil
	}
	watchCtx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	seen := newLatest()
	from := k.node.ResourceVersion
	watching.Go(func() { _ = k.deps.API.Watch(watchCtx, from, seen.set) }) // Ends with the context only.
	return k.loop(ctx, seen)
}

// awaitFacts waits for the machine and the runtime, but not for long: without
// them the Node is registered as not ready, and says what is missing.
func (k *Keeper) awaitFacts(ctx context.Context) {
	timeout := time.NewTimer(factsTimeout)
	defer timeout.Stop()
	for {
		known := k.deps.Store.Get()
		if known.Machine != nil && known.Runtime.Known && len(known.Addresses) > 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-timeout.C:
			klog.FromContext(ctx).Info("Not all is known yet, going on without", "machine", known.Machine != nil, "runtime", known.Runtime.Known, "addresses", len(known.Addresses))
			return
		case <-k.deps.Store.Changed():
		}
	}
}

func (k *Keeper) checkReservation() error {
	known := k.deps.Store.Get()
	if known.Machine == nil {
		return nil
	}
	return node.CheckReservation(k.cfg.Node, known.Machine)
}

// register registers the Node, trying until it succeeds; false when ctx ended first.
func (k *Keeper) register(ctx context.Context) bool {
	log := klog.FromContext(ctx)
	start := time.Now()
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 7 * time.Second, Jitter: 0.1})
	for {
		known := k.deps.Store.Get()
		fresh, events := node.New(k.cfg.Node, known, time.Now())
		registered, created, err := k.tryRegister(ctx, fresh)
		if err == nil {
			for _, e := range events {
				if created {
					k.deps.Events.Send(ctx, e)
				}
			}
			log.Info("Node is registered", "node", k.cfg.Node.Name, "created", created)
			k.node = registered
			k.deps.Health.Set("apiserver", true, "")
			k.deps.Metrics.registered(time.Since(start))
			k.publish(func(v *View) { v.Node, v.Registered, v.LastError = registered, true, "" })
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		k.deps.Health.Set("apiserver", false, fmt.Sprintf("register the node: %v; tried again by itself", err))
		k.publish(func(v *View) {
			v.Node, v.LastError = fresh, err.Error()
		})
		if retry.Wait(ctx) != nil {
			return false
		}
	}
}

func (k *Keeper) tryRegister(ctx context.Context, fresh *v1.Node) (registered *v1.Node, created bool, err error) {
	if k.cfg.Register {
		return k.deps.API.Register(ctx, k.cfg.Node, fresh)
	}
	registered, err = k.deps.API.Get(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("%w (registerNode is false, so somebody else has to create it)", err)
	}
	return registered, false, nil
}

// loop computes and writes whenever something asks for it. seen is nil without
// an apiserver.
func (k *Keeper) loop(ctx context.Context, seen *latest) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var updates <-chan struct{}
	if seen != nil {
		updates = seen.changed
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-k.deps.Store.Changed():
		case <-updates:
			k.take(ctx, seen.get())
		}
		wait, err := k.step(ctx)
		if err != nil {
			return err
		}
		timer.Reset(wait)
	}
}

// take takes over the Node as somebody changed it; nil is deleted.
func (k *Keeper) take(ctx context.Context, there *v1.Node) {
	if there == nil {
		if k.View().Registered {
			klog.FromContext(ctx).Info("Node was deleted; it is registered again when nodestatus is restarted", "node", k.cfg.Node.Name)
		}
		k.deps.Health.Set("apiserver", false, "the Node was deleted; restart nodestatus to register it again")
		k.publish(func(v *View) { v.Registered, v.LastError = false, "the Node was deleted" })
		return
	}
	if newer, err := resourceversion.CompareResourceVersion(there.ResourceVersion, k.node.ResourceVersion); err == nil && newer <= 0 {
		if newer < 0 {
			there = k.restored(ctx)
		}
		if newer == 0 || there == nil {
			return
		}
	}
	if k.node.Spec.Unschedulable != there.Spec.Unschedulable {
		reason := "NodeSchedulable"
		if there.Spec.Unschedulable {
			reason = "NodeNotSchedulable"
		}
		k.deps.Events.Send(ctx, node.Event{Type: v1.EventTypeNormal, Reason: reason, Message: fmt.Sprintf("Node %s status is now: %s", k.cfg.Node.Name, reason)})
	}
	k.node = there
	k.publish(func(v *View) { v.Node, v.Registered = there, true })
}

// restored is the Node as it is now, if that is older than the one that is known: etcd was
// restored from before. Else the watch is late, and it is nil.
func (k *Keeper) restored(ctx context.Context) *v1.Node {
	if k.deps.API == nil {
		return nil
	}
	there, err := k.deps.API.Get(ctx)
	if err != nil {
		return nil // The next report finds out.
	}
	if newer, err := resourceversion.CompareResourceVersion(there.ResourceVersion, k.node.ResourceVersion); err != nil || newer >= 0 {
		return nil
	}
	klog.FromContext(ctx).Info("The Node is older than it was: etcd was restored from before; going on from there", "node", k.cfg.Node.Name)
	return there
}

// step computes the status and writes it if that is due. It returns when to
// look again.
func (k *Keeper) step(ctx context.Context) (time.Duration, error) {
	if err := k.checkReservation(); err != nil {
		return 0, err
	}
	k.mend(ctx)
	now := time.Now()
	known := k.deps.Store.Get()
	wait := time.Duration(float64(k.cfg.UpdateFrequency) * (1 + 0.04*rand.Float64()))
	// Before it is known what a run before this one has found, the Node's stays.
	if judgement, _, judged := k.deps.Judge.Judge(now); judged && k.deps.Judge.Seeded() {
		known.Pressure = judgement.Under
		if !judgement.Again.IsZero() {
			wait = min(wait, judgement.Again.Sub(now)+time.Millisecond)
		}
	}
	wanted, events := node.Update(k.cfg.Node, known, k.node, now)
	changed := !node.Same(&k.node.Status, &wanted.Status)
	if k.deps.API == nil {
		k.accept(ctx, wanted, events, now, changed)
		return wait, nil
	}
	if !k.View().Registered || !changed && now.Before(k.reportAt) {
		return wait, nil
	}
	if err := k.report(ctx, wanted, events, now, changed); err != nil {
		return min(wait, k.retry.Next()), nil
	}
	return wait, nil
}

// report writes the status, trying a few times; from the second try it takes
// the Node as it is at the apiserver.
func (k *Keeper) report(ctx context.Context, wanted *v1.Node, events []node.Event, now time.Time, changed bool) error {
	var err error
	for range attempts {
		var patched *v1.Node
		patched, err = k.deps.API.PatchStatus(ctx, k.node, wanted)
		if err == nil {
			k.failures = 0
			k.retry.Reset()
			k.deps.Health.Set("apiserver", true, "")
			k.accept(ctx, patched, events, now, changed)
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if k.failures++; k.failures > 1 && k.deps.OnRepeatedFailure != nil {
			k.deps.OnRepeatedFailure()
		}
		there, getErr := k.deps.API.Get(ctx)
		if getErr != nil {
			break // It is away, or the Node is gone; the next look tries again.
		}
		known := k.deps.Store.Get()
		known.Pressure = underPressure(wanted)
		k.node = there
		wanted, events = node.Update(k.cfg.Node, known, there, now)
	}
	k.deps.Health.Set("apiserver", false, fmt.Sprintf("report the node's status: %v; tried again by itself", err))
	k.publish(func(v *View) { v.LastError = err.Error() })
	return err
}

func underPressure(n *v1.Node) map[pressure.Kind]bool {
	out := map[pressure.Kind]bool{}
	for _, kind := range node.Present(n) {
		out[kind] = true
	}
	return out
}

// accept makes a Node the present one.
func (k *Keeper) accept(ctx context.Context, n *v1.Node, events []node.Event, now time.Time, changed bool) {
	k.node = n
	if changed || k.reportAt.IsZero() {
		// Nodes that changed together do not report together ever after.
		k.reportAt = now.Add(time.Duration(float64(k.cfg.ReportFrequency) * (0.5 + rand.Float64())))
	} else {
		k.reportAt = now.Add(k.cfg.ReportFrequency)
	}
	k.publish(func(v *View) {
		v.Node, v.LastError = n, ""
		if k.deps.API != nil {
			v.LastReport = now
		}
	})
	for _, e := range events {
		k.deps.Events.Send(ctx, e)
	}
	if node.Ready(n) {
		k.deps.Metrics.ready()
	}
}

// mend puts back labels and annotations that every Node has, if somebody took
// one away. What fails is tried again with the next look.
func (k *Keeper) mend(ctx context.Context) {
	if k.deps.API == nil || !k.cfg.Register || !k.View().Registered {
		return
	}
	if _, missing := node.Reconcile(k.cfg.Node, k.node); !missing {
		k.unmended = false
		return
	}
	mended, err := k.deps.API.Mend(ctx, k.cfg.Node, k.node)
	if err != nil {
		if !k.unmended {
			k.unmended = true
			klog.FromContext(ctx).Error(err, "Labels were not put back, trying with each look")
		}
		return
	}
	k.unmended = false
	k.node = mended
	k.publish(func(v *View) { v.Node = mended })
}
