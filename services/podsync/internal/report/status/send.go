package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
	// overwritten is how long a status of somebody else's stands.
	overwritten = time.Second
)

// target is the object whose status is written; false when there is none (yet).
func (w *Writer) target(e *entry) (*v1.Pod, bool) {
	switch {
	case w.deps.Client == nil || e.obj == nil:
		return nil, false
	case !podutil.Static(e.obj):
		return e.obj, e.gone != e.obj.UID
	case w.deps.Mirrors == nil:
		return nil, false
	}
	mirror, ok := w.deps.Mirrors.Mirror(e.uid)
	return mirror, ok && e.gone != mirror.UID
}

// learnLocked takes in what an object says of its status, unless it is older than
// what is known: the watch may be behind what was written here. It never goes
// back behind itself, unless the apiserver's data does, as when a backup is
// restored: then what it shows is what there is.
func (w *Writer) learnLocked(e *entry, object *v1.Pod) {
	same := e.knownOf == object.UID
	back := same && e.seenOf == object.UID && newer(e.seen, object.ResourceVersion)
	e.seenOf, e.seen = object.UID, object.ResourceVersion
	if same && !back && !newer(object.ResourceVersion, e.rv) {
		return
	}
	if !same {
		e.refused = nil // another object may take it
	}
	e.knowLocked(object)
	if back {
		e.againLocked()
		w.wentBackLocked(e)
	}
}

// knowLocked makes an object's status the known one.
func (e *entry) knowLocked(object *v1.Pod) {
	e.known = normalize(object.Status, v1.PodStatus{})
	e.knownOf, e.rv = object.UID, object.ResourceVersion
}

func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return order > 0
}

// forgottenLocked says whether nobody wants the entry any more: of the same UID there
// may be another by now, a static pod that has come back, whose status this one must
// not overwrite.
func (w *Writer) forgottenLocked(e *entry) bool { return w.entries[e.uid] != e }

// lookLocked decides what is to be done for a pod now. It is called after each
// change of its entry.
func (w *Writer) lookLocked(e *entry) {
	if w.ctx == nil || e.busy || e.version == 0 || w.forgottenLocked(e) {
		return
	}
	target, ok := w.target(e)
	if !ok {
		e.wake()
		return
	}
	if e.knownOf == target.UID && same(e.owedLocked(), e.known) {
		e.accepted = e.version
		e.stopTimer()
		e.wake()
		return
	}
	w.scheduleLocked(e)
}

// scheduleLocked sends the entry's status now or later.
func (w *Writer) scheduleLocked(e *entry) {
	switch {
	case e.queued:
		if q := queueOfLocked(e); q < e.queue {
			w.queues[e.queue] = slices.DeleteFunc(w.queues[e.queue], func(o *entry) bool { return o == e })
			w.enqueueLocked(e)
		}
	case e.retrying && e.timer != nil && (e.tries > 0 || w.away):
		// The retry takes the newest status along.
	case e.accepted == e.version && (e.tries > 0 || !podutil.Static(e.obj)):
		// Somebody overwrites what was accepted. Whoever it was may want to read
		// it back, and the pod itself has not changed: it is not urgent.
		w.after(e, max(retryDelay(e.tries), overwritten), true)
		e.tries++
	case e.urgent || w.cfg.MinorDelay < 0 || urgent(e.owedLocked(), e.known):
		e.stopTimer()
		w.enqueueLocked(e)
	default:
		if d := w.delay(e); e.timer == nil || time.Now().Add(d).Before(e.due) {
			w.after(e, d, false)
		}
	}
}

// delay is how long a change that nobody can act on waits for the next one.
func (w *Writer) delay(e *entry) time.Duration {
	switch d := w.cfg.MinorDelay; {
	case e.desired.Phase == v1.PodPending && e.known.Phase == v1.PodPending && e.known.StartTime != nil && e.desired.ObservedGeneration == e.known.ObservedGeneration:
		return 4 * d
	default:
		return d
	}
}

func (w *Writer) after(e *entry, d time.Duration, retrying bool) {
	e.stopTimer()
	e.retrying, e.due = retrying, time.Now().Add(d)
	var self *time.Timer
	self = time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if e.timer != self {
			return
		}
		e.timer = nil
		if w.ctx != nil && !e.busy && !e.queued && !w.forgottenLocked(e) {
			w.enqueueLocked(e)
		}
	})
	e.timer = self
}

func retryDelay(tries int) time.Duration {
	d := firstRetry
	for range min(tries-1, 10) {
		d = min(2*d, lastRetry)
	}
	return d
}

// queueOfLocked is the queue for what the entry has to say.
func queueOfLocked(e *entry) int {
	switch {
	case e.urgent || podutil.TerminalPhase(e.desired.Phase):
		return ends
	case urgent(e.owedLocked(), e.known):
		return news
	}
	return minors
}

// enqueueLocked lets the entry's status be sent. Whether its object is gone that tells, too.
func (w *Writer) enqueueLocked(e *entry) {
	e.gone = ""
	e.queued, e.queue = true, queueOfLocked(e)
	w.queues[e.queue] = append(w.queues[e.queue], e)
	w.pumpLocked()
}

// pumpLocked starts requests while there is room.
func (w *Writer) pumpLocked() {
	for w.ctx != nil && w.running < w.cfg.Workers {
		q := slices.IndexFunc(w.queues[:], func(q []*entry) bool { return len(q) > 0 })
		if q < 0 {
			return
		}
		e := w.queues[q][0]
		w.queues[q] = slices.Delete(w.queues[q], 0, 1)
		e.queued = false
		target, ok := w.target(e)
		if e.busy || !ok || w.forgottenLocked(e) {
			continue // whoever is busy looks again
		}
		e.busy = true
		e.stopTimer()
		w.running++
		w.idle.Add(1)
		go w.send(w.ctx, e, request{target: target, desired: e.owedLocked(), known: e.known, version: e.version, knownOf: e.knownOf, rv: e.rv})
	}
}

type request struct {
	target         *v1.Pod
	desired, known v1.PodStatus
	version        uint64
	// knownOf and rv are what known was of when the request began.
	knownOf types.UID
	rv      string
}

func (w *Writer) send(ctx context.Context, e *entry, r request) {
	defer w.idle.Done()
	defer w.deps.Sending()()
	ended := w.deps.Trace(e.uid)
	object, err := w.patch(ctx, r)
	ended(err)
	withheld := w.withhold(e, r, err)
	news := w.noteFailure(ctx, e, err)
	w.report(ctx, r, err, withheld, news)
	if news {
		w.deps.OnRefused(e.uid, err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	e.busy = false
	w.running--
	switch {
	case err == nil:
		w.acceptLocked(e, r, object)
	case isGone(err):
		w.goneLocked(e, r.target.UID)
	case len(withheld) > 0:
		w.lookLocked(e) // for the rest
	default:
		e.tries++
		w.away = w.away || isAway(err)
		if w.ctx != nil && !w.forgottenLocked(e) {
			delay := max(retryDelay(e.tries), suggested(err))
			e.retryAt = time.Now().Add(delay)
			w.after(e, delay, true)
		}
	}
	w.pumpLocked()
}

// goneLocked takes in that an object is said to be gone. As long as its source does not
// say so too, it is asked again: a webhook may not have found something else, or a proxy
// its apiserver. A mirror may have been made anew meanwhile, and shows nothing yet.
func (w *Writer) goneLocked(e *entry, uid types.UID) {
	e.gone, e.tries = uid, 0
	e.wake()
	if w.ctx != nil && !w.forgottenLocked(e) {
		w.after(e, lastRetry, true)
		w.lookLocked(e)
	}
}

// acceptLocked takes in that the apiserver has a status.
func (w *Writer) acceptLocked(e *entry, r request, object *v1.Pod) {
	// An answer is never older than what was known when it was asked for, unless
	// the apiserver's data went back.
	back := r.knownOf == object.UID && newer(r.rv, object.ResourceVersion)
	if back || e.knownOf != object.UID || !newer(e.rv, object.ResourceVersion) {
		// What was sent counts as what is there, even if the apiserver dropped
		// or a webhook changed some of it: it is not sent again before the
		// object changes.
		e.known = r.desired
		e.known.Conditions = withOthers(r.desired.Conditions, object.Status.Conditions)
		e.knownOf, e.rv = object.UID, object.ResourceVersion
	}
	e.accepted = r.version
	w.deps.Metrics.StatusWritten(time.Since(e.since))
	e.since = time.Now() // of what has changed meanwhile
	if e.version == r.version {
		e.tries = max(e.tries, 1) // sending this version again is a repetition
	}
	if w.away {
		w.releaseLocked()
	}
	if back {
		w.wentBackLocked(e)
	}
	w.lookLocked(e)
}

// releaseLocked retries at once what failed as if the apiserver were away: it is back. What
// fails again though others do not is not tried with each of them.
func (w *Writer) releaseLocked() {
	w.away = false
	now := time.Now()
	for _, e := range w.entries {
		refused := e.failure != nil && !isAway(e.failure)
		if e.timer != nil && e.retrying && !e.busy && !e.queued && !refused && now.Sub(e.released) >= lastRetry {
			e.released = now
			e.stopTimer()
			w.enqueueLocked(e)
		}
	}
}

func (w *Writer) patch(ctx context.Context, r request) (*v1.Pod, error) {
	data, err := buildPatch(r.target.UID, r.desired, r.known)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.RequestTimeout)
	defer cancel()
	object, err := w.deps.Client.CoreV1().Pods(r.target.Namespace).Patch(ctx, r.target.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	if err = answer.Object(object, r.target.Name, err); err != nil {
		return nil, err
	}
	return object, nil
}

// withhold takes in the parts of a status that are refused for good, and tells
// of those that are new.
func (w *Writer) withhold(e *entry, r request, err error) []refusal {
	if err == nil || isGone(err) {
		return nil
	}
	found := refusalsIn(err, r)
	w.mu.Lock()
	fresh, pod := e.refuseLocked(found), e.obj
	w.mu.Unlock()
	for _, f := range fresh {
		w.deps.Metrics.StatusRefused(f.Field)
		w.deps.OnWithheld(pod, f.Refusal)
	}
	return fresh
}

// report logs how a request ended. What is refused is tried again every few
// seconds, maybe for each pod and for ever: only what is news stands in the log.
func (w *Writer) report(ctx context.Context, r request, err error, withheld []refusal, news bool) {
	log := klog.FromContext(ctx)
	switch {
	case err == nil:
		w.deps.Health.Set("apiserver", true, "")
		log.V(4).Info("Status accepted", "pod", klog.KObj(r.target), "phase", r.desired.Phase)
	case isGone(err):
		log.V(2).Info("Status not needed any more, the pod's object is gone", "pod", klog.KObj(r.target), "podUID", r.target.UID)
	case ctx.Err() != nil:
	case len(withheld) > 0:
		for _, f := range withheld {
			log.Error(err, "A part of the status is refused by the apiserver for good; the rest is written without it", "pod", klog.KObj(r.target), "part", f.Part.String())
		}
	case isAway(err):
		w.deps.Health.Set("apiserver", false, fmt.Sprintf("write status of pod %s: %v; it is tried again by itself, check that the apiserver runs and is reachable", klog.KObj(r.target), err))
		log.V(1).Info("Status not written, trying again", "pod", klog.KObj(r.target), "err", err)
	case !news:
		log.V(2).Info("Status refused again, trying again", "pod", klog.KObj(r.target), "err", err)
	default:
		log.Error(err, "Status refused by the apiserver, trying again; if it says forbidden, the node needs the role system:node", "pod", klog.KObj(r.target), "phase", r.desired.Phase)
	}
}

func (e *entry) stopTimer() {
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

// wake lets those that wait for the entry look again.
func (e *entry) wake() {
	for _, ch := range e.waiters {
		close(ch)
	}
	e.waiters = nil
}

// isGone says whether the object of this UID is not there: none of the name, or
// another. A DELETE's precondition answers with a conflict; to a PATCH of an
// object with another UID, that field is immutable.
func isGone(err error) bool {
	switch {
	case apierrors.IsNotFound(err):
		return true
	case apierrors.IsConflict(err):
		_, why, _ := strings.Cut(err.Error(), `": `) // before it is the pod's name, which may be squid
		return strings.Contains(strings.ToLower(why), "uid")
	default:
		return apierrors.IsInvalid(err) && slices.ContainsFunc(causes(err), func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
	}
}

func causes(err error) []metav1.StatusCause {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		return status.Status().Details.Causes
	}
	return nil
}

// isAway says whether the apiserver could not answer, rather than refused.
func isAway(err error) bool {
	status, answered := err.(apierrors.APIStatus)
	if answered && isTooLarge(err) {
		return false
	}
	return !answered || status.Status().Code >= 500 || status.Status().Code == 429
}

// isTooLarge tells that the database does not take the object, or the apiserver does
// not send it there: its code is the one of an apiserver in trouble, and only this
// pod is.
func isTooLarge(err error) bool {
	for _, words := range []string{"request is too large", "larger than max"} {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}

func suggested(err error) time.Duration {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !ok {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
