package worker

import (
	"context"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/runtime/limiter"
)

// worker works on one pod: it takes in what its inbox holds, asks the planner and does
// what that says. All of it belongs to its own goroutine: the Registry has what it keeps
// of the pod in held, which a worker cannot reach, and the two meet in the inbox.
type worker struct {
	reg    *Registry
	uid    types.UID
	seq    uint64
	inbox  *inbox
	source string // of its pod; empty for an orphan

	life      context.Context
	state     plan.State
	started   bool    // planned at least once
	published *v1.Pod // what the newest status was published for
	shown     *v1.Pod // what the newest view shows
	ended     bool    // what was last noted as stopped
	freed     bool    // what was last noted as freed
	overdue   bool    // it was told that the pod's end takes too long
	cancels   map[podstate.Key]*flight
	targets   []podstate.Target
	reclaims  []reclaim // who waits for what the pod can do without to be removed
	removed   int       // what was, since the first of them waits
	stopped   time.Time // since when the pod has ended; zero: it has not
	admitAt   time.Time // when admission was first asked
	waitSaid  string    // the reason to wait of which an event was recorded
	line      *timeline.Line
	first     firstStart
	putOff    putOff
	log       logr.Logger
}

// flight is an action under way.
type flight struct {
	cancel context.CancelFunc
	began  time.Time
	step   *timeline.Step
}

func newWorker(r *Registry, uid types.UID, seq uint64, in *inbox) *worker {
	return &worker{
		line: r.deps.Timelines.Open(uid),
		reg:  r, uid: uid, seq: seq, inbox: in, first: firstStart{seen: time.Now()},
		state: plan.NewState(uid),
	}
}

// run works until the pod is done or life ends.
func (w *worker) run(life context.Context) {
	defer w.cancelAll()
	defer w.endReclaims()
	w.life = life
	w.log = klog.FromContext(life).WithValues("podUID", w.uid)
	var alarm *time.Timer
	var ring <-chan time.Time
	w.reg.deps.Metrics.workerStarted(w.first.seen)
	for {
		began, round := time.Now(), w.roundOf()
		wakeAt, done := w.step()
		w.reg.deps.Metrics.rounded(round, began)
		if done {
			w.reg.finished(w.uid)
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
		case <-w.inbox.wake:
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
	now := time.Now()
	w.takeGrant(now)
	w.takePutOff(now)
	w.state.Begin(now)
	w.state.Node = w.reg.deps.Node()
	w.state.Reclaim = len(w.reclaims) > 0
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
	again := w.reclaimed(out)
	w.publish(out)
	if out.Wake.IsZero() || !again.IsZero() && again.Before(out.Wake) {
		return again, false
	}
	return out.Wake, false
}

// takeIn empties the inbox into the state.
func (w *worker) takeIn() {
	in := w.inbox.take()
	if in.pod != nil {
		w.source = in.source
		w.setPod(in.pod)
	}
	if in.removed {
		w.line.Note(timeline.Entry{What: "not wanted any more", Detail: "the pod's source has removed it"})
		w.state.Removed, w.state.Cleaned.API = true, true
	}
	if in.returns != nil {
		w.state.Returns = *in.returns
	}
	if in.stop != nil {
		w.takeStop(*in.stop, in.stopKept)
	}
	if in.observed != nil {
		w.noteObserved(&w.state.Observed, in.observed)
		w.state.Observe(*in.observed)
	}
	if in.excess != nil {
		w.state.Excess = *in.excess
	}
	w.reclaims = append(w.reclaims, in.reclaims...)
	for k, v := range in.probes {
		w.noteProbe(k, v)
		w.state.Probes[k] = v
	}
	for id, h := range in.hooks {
		w.state.Hooks[id] = h
	}
	for _, o := range in.done {
		w.finish(o)
	}
	if in.objects {
		w.state.ObjectsChanged()
	}
}

// setPod takes a new version of the pod in.
func (w *worker) setPod(pod *v1.Pod) {
	old := w.state.Desired
	changed := w.state.Want(pod)
	w.notePod(old, pod)
	if old == nil {
		w.state.Static = w.source != apiSource
		w.state.Reported = *pod.Status.DeepCopy()
		if last := w.reg.deps.Ends.Last(w.uid); last != nil && !podutil.TerminalPhase(pod.Status.Phase) {
			w.state.Reported, w.state.StatusKept = *last, true
		}
		if w.state.Static {
			w.state.Reported.Conditions = append(w.state.Reported.Conditions, w.reg.deps.Conditions.Of(w.uid)...)
		}
		_, w.state.Resize.Stored = w.reg.deps.Allocations.Get(w.uid)
		w.state.Begun = w.state.Resize.Stored || pod.Status.StartTime != nil
		w.state.LogCounts = w.reg.deps.Executor.LogCounts(pod)
		for key, result := range w.reg.deps.Probes.Results(w.uid) {
			if _, newer := w.state.Probes[key]; !newer {
				w.state.Probes[key] = result
			}
		}
		w.log = w.log.WithValues("pod", klog.KObj(pod))
		return
	}
	w.reg.deps.Metrics.requested(old, pod)
	if changed {
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

func (w *worker) order() limiter.Order {
	o := limiter.Order{Seq: w.seq}
	if pod := w.state.Pod; pod != nil {
		o.Namespace, o.Created = pod.Namespace, pod.CreationTimestamp.Time
		o.Critical = w.state.Static || podutil.OfCriticalPriority(pod)
	}
	return o
}
