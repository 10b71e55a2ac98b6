package worker

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
	"github.com/polylet/polylet/services/podsync/internal/runtime/limiter"
)

// worker is one pod's. Fields of the first group belong to the Registry and its
// lock; in has a lock of its own; the rest belongs to the worker's goroutine.
type worker struct {
	reg    *Registry
	uid    types.UID
	seq    uint64
	pod    *v1.Pod // newest that the source gave; nil for an orphan
	source string
	// gone: the source does not want it any more.
	gone bool
	// again is set when the source wants the pod anew while it is being ended.
	again       *v1.Pod
	againSource string
	// keptLogs: logs were left on the disk for the pod that comes back.
	keptLogs  bool
	held      bool
	admission podstate.Decision
	leaving   bool      // it was told to stop
	leaves    time.Time // since when it is being stopped, for whatever reason
	preempted bool      // for another pod's sake
	claiming  bool      // others are being stopped to make room for it
	stopped   bool      // nothing of it runs any more
	grant     grant
	// pendingSince is since when its resize waited in a previous run.
	pendingSince time.Time
	working      bool

	mu sync.Mutex
	in inbox
	// shownWaits is what the pod waits for, guarded by mu too.
	shownWaits []podstate.Wait
	wake       chan struct{}

	life    context.Context
	state   plan.State
	desired *v1.Pod            // as the source has it; state.Pod has what is allocated
	kept    *resize.Allocation // what is allocated; nil before admission
	stored  bool               // kept is in the checkpoint: it outlives a crash though there be no sandbox
	// askResize is when a resize that waits is decided on again; zero for never.
	askResize   time.Time
	resizeBegan time.Time
	started     bool // planned at least once
	// begun: the pod was admitted in a previous run.
	begun     bool
	deleting  *v1.Pod // whose deletion was taken in last
	versioned *v1.Pod // what State.Volumes.Version was counted for
	published *v1.Pod // what the newest status was published for
	shown     *v1.Pod // what the newest view shows
	ended     bool    // what was last noted as stopped
	overdue   bool    // it was told that the pod's end takes too long
	cancels   map[podstate.Key]*flight
	hooks     map[string]podstate.Hook
	targets   []podstate.Target
	waits     []podstate.Wait
	admitAt   time.Time // when admission was first asked
	waitSaid  string    // the reason to wait of which an event was recorded
	line      *timeline.Line
	first     firstStart
	repeats   repeats
	log       logr.Logger
}

// flight is an action under way.
type flight struct {
	cancel context.CancelFunc
	began  time.Time
	step   *timeline.Step
}

// inbox is what was told and not yet looked at; the newest of each wins.
type inbox struct {
	pod      *v1.Pod
	removed  bool
	observed *podstate.Observed
	probes   map[podstate.ProbeKey]podstate.ProbeResult
	hooks    map[string]podstate.Hook
	done     []outcome
	stop     *podstate.Stop
	stopKept bool // stop was kept by a previous run
	objects  bool
	excess   *map[string]bool
}

func newWorker(r *Registry, uid types.UID, seq uint64) *worker {
	return &worker{
		line: r.deps.Timelines.Open(uid),
		reg:  r, uid: uid, seq: seq, wake: make(chan struct{}, 1), first: firstStart{seen: time.Now()},
		state: plan.State{
			UID: uid, Probes: map[podstate.ProbeKey]podstate.ProbeResult{}, Images: map[string]plan.Image{},
			InFlight: map[podstate.Key]podstate.Action{}, Failures: map[podstate.Key]plan.Failure{},
			Stops: map[string]plan.ContainerStop{}, StoppedSandboxes: map[string]bool{},
		},
	}
}

// tell puts something into the inbox; it never blocks.
func (w *worker) tell(put func(*inbox)) {
	w.mu.Lock()
	put(&w.in)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run works until the pod is done or life ends.
func (w *worker) run(life context.Context) {
	defer w.cancelAll()
	w.life = life
	w.log = logr.FromContextOrDiscard(life).WithValues("podUID", w.uid)
	var alarm *time.Timer
	var ring <-chan time.Time
	w.reg.deps.Metrics.workerStarted(w.first.seen)
	for {
		began, round := time.Now(), w.roundOf()
		wakeAt, done := w.step()
		w.reg.deps.Metrics.rounded(round, began)
		if done {
			w.reg.finished(w)
			return
		}
		if alarm != nil {
			alarm.Stop()
		}
		ring = nil
		if !wakeAt.IsZero() {
			alarm = time.NewTimer(max(time.Millisecond, time.Until(wakeAt)))
			ring = alarm.C
		}
		select {
		case <-w.wake:
		case <-ring:
		case <-life.Done():
			if alarm != nil {
				alarm.Stop()
			}
			return
		}
	}
}

// step takes in what was told, plans, and does what the plan says.
func (w *worker) step() (wakeAt time.Time, done bool) {
	w.takeIn()
	if w.state.Pod != nil && w.state.Admission.Decision == podstate.AdmissionPending {
		w.admit()
	}
	w.takeGrant()
	w.state.Now = time.Now()
	w.state.DeletedAnew(w.deleting, w.state.Now)
	w.deleting = w.state.Pod
	w.noteVersion()
	w.state.Node = w.reg.deps.Node()
	w.withHooks()
	out := plan.Plan(w.state)
	if out.Done && len(w.cancels) == 0 {
		return time.Time{}, true
	}
	if out.Terminating && w.state.EndSince.IsZero() {
		w.state.EndSince = w.state.Now
	}
	if w.state.Observed.Known {
		w.started = true
	}
	for _, key := range out.Cancel {
		if f := w.cancels[key]; f != nil {
			f.cancel()
		}
	}
	for _, a := range out.Actions {
		w.launch(a)
	}
	w.publish(out)
	return earlier(out.Wake, earlier(w.admitAgain(), w.askResize)), false
}

// earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// takeIn empties the inbox into the state.
func (w *worker) takeIn() {
	w.mu.Lock()
	in := w.in
	w.in = inbox{}
	w.mu.Unlock()
	if in.pod != nil {
		w.setPod(in.pod)
	}
	if in.removed {
		w.line.Note(timeline.Entry{What: "not wanted any more", Detail: "the pod's source has removed it"})
		w.state.Removed, w.state.Cleaned.API = true, true
	}
	if in.stop != nil && w.state.Stop == nil {
		w.line.Note(timeline.Entry{What: "the node ends it", Detail: in.stop.Reason + ": " + in.stop.Message})
		w.state.Stop, w.state.StopUnkept = in.stop, !in.stopKept
	}
	if in.observed != nil {
		w.noteObserved(&w.state.Observed, in.observed)
		w.state.Observed = *in.observed
		w.forgetGone()
	}
	if in.excess != nil {
		w.state.Excess = *in.excess
	}
	for k, v := range in.probes {
		w.noteProbe(k, v)
		w.state.Probes[k] = v
	}
	for id, h := range in.hooks {
		if w.hooks == nil {
			w.hooks = map[string]podstate.Hook{}
		}
		w.hooks[id] = h
	}
	for _, o := range in.done {
		w.finish(o)
	}
	if in.objects {
		w.retryNow()
	}
}

// setPod takes a new version of the pod in.
func (w *worker) setPod(pod *v1.Pod) {
	old := w.desired
	w.desired, w.state.Pod = pod, pod
	if w.kept != nil {
		w.state.Pod = w.kept.Apply(pod)
	}
	w.notePod(old, pod)
	if old == nil {
		w.state.Static = w.source != apiSource
		w.state.Reported = *pod.Status.DeepCopy()
		if w.state.Static {
			w.state.Reported.Conditions = append(w.state.Reported.Conditions, w.reg.deps.Standing.Of(w.uid)...)
		}
		_, w.stored = w.reg.deps.Allocations.Get(w.uid)
		w.begun = w.stored || pod.Status.StartTime != nil
		w.state.LogCounts = w.reg.deps.Executor.LogCounts(pod)
		for key, result := range w.reg.deps.Probes.Results(w.uid) {
			if _, newer := w.state.Probes[key]; !newer {
				w.state.Probes[key] = result
			}
		}
		w.log = w.log.WithValues("pod", pod.Namespace+"/"+pod.Name)
		return
	}
	w.reg.deps.Metrics.requested(old, pod)
	if !equality.Semantic.DeepEqual(old.Spec, pod.Spec) {
		// What failed because of the old spec need not wait.
		clear(w.state.Failures)
		w.lacking(old, pod)
	}
}

// lacking tells of an update that needs what this node does not have. It is
// followed as far as that goes.
// Source: KEP-5328.
func (w *worker) lacking(old, pod *v1.Pod) {
	if w.reg.deps.Unmet == nil {
		return
	}
	message := ""
	switch missing, err := w.reg.deps.Unmet(old, pod); {
	case err != nil:
		message = err.Error()
	case len(missing) > 0:
		message = "Pod requires node features that are not available: " + strings.Join(missing, ", ")
	default:
		return
	}
	w.reg.deps.Events.Pod(pod, v1.EventTypeWarning, "FailedNodeDeclaredFeaturesCheck", message)
}

// noteVersion counts the versions of the pod that a volume may tell apart.
func (w *worker) noteVersion() {
	old, now := w.versioned, w.state.Pod
	if old == now {
		return
	}
	w.versioned = now
	if old != nil && now != nil && !sameInVolumes(old, now) {
		w.state.Volumes.Version++
	}
}

// sameInVolumes says whether no volume can tell two versions of a pod apart:
// what of a pod changes and files may show are labels, annotations, and the
// cpu and memory of its containers and of the pod as a whole. A debug container
// may mount one volume beneath another, which has a directory for it then.
func sameInVolumes(a, b *v1.Pod) bool {
	same := equality.Semantic.DeepEqual
	if !same(a.Labels, b.Labels) || !same(a.Annotations, b.Annotations) || !same(a.Spec.Resources, b.Spec.Resources) || len(a.Spec.Containers) != len(b.Spec.Containers) || len(a.Spec.InitContainers) != len(b.Spec.InitContainers) || len(a.Spec.EphemeralContainers) != len(b.Spec.EphemeralContainers) {
		return false
	}
	for i := range a.Spec.InitContainers {
		if !same(a.Spec.InitContainers[i].Resources, b.Spec.InitContainers[i].Resources) {
			return false
		}
	}
	for i := range a.Spec.Containers {
		if !same(a.Spec.Containers[i].Resources, b.Spec.Containers[i].Resources) {
			return false
		}
	}
	return true
}

// retryNow lets what failed be tried at once.
func (w *worker) retryNow() {
	for k, f := range w.state.Failures {
		if k.Kind == podstate.SetupVolumes || k.Kind == podstate.StartContainer || k.Kind == podstate.MakeSandbox {
			f.At = time.Time{}
			w.state.Failures[k] = f
		}
	}
}

// withHooks puts into the observation what only this process knows: how
// postStart hooks stand.
func (w *worker) withHooks() {
	if len(w.hooks) == 0 {
		return
	}
	containers := make([]podstate.Container, len(w.state.Observed.Containers))
	copy(containers, w.state.Observed.Containers)
	present := map[string]bool{}
	for i := range containers {
		present[containers[i].ID] = true
		if h, ok := w.hooks[containers[i].ID]; ok {
			containers[i].Hook = h
		}
	}
	w.state.Observed.Containers = containers
	for id, h := range w.hooks {
		if h == podstate.HookDone || !present[id] && len(w.cancels) == 0 {
			delete(w.hooks, id)
		}
	}
}

func (w *worker) order() limiter.Order {
	o := limiter.Order{Seq: w.seq}
	if pod := w.state.Pod; pod != nil {
		o.Namespace, o.Created = pod.Namespace, pod.CreationTimestamp.Time
		o.Critical = w.state.Static || pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
	}
	return o
}

// systemCritical is the least priority of critical pods.
const systemCritical = 2_000_000_000
