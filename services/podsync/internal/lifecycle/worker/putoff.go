package worker

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/evictions"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// putOffAdvice is for who waits for a pod whose controller's pods are evicted again and
// again.
const putOffAdvice = "have the controller's pods ask for what they use (resources.requests), so that they come where there is room for them, or find out why they use so much; polylet explain node shows what the node is short of"

// putOff is what a worker knows of its pod's start being put off.
type putOff struct {
	// over: it was let go, and is not asked about again.
	over bool
	// said is until when it was last said to wait.
	said time.Time
	// of is how many were evicted then.
	of int
	// event is when the last Event said so, and of how many evicted ones.
	event   time.Time
	evicted int
}

// eventAgain is when an Event says once more that a start is put off, if not twice as many
// were evicted meanwhile: of the Events about a pod one in five minutes gets through when
// there were many.
const eventAgain = 5 * time.Minute

// takePutOff takes in whether the pod's start is put off because the node has evicted
// others of its controller. What has begun is never held up.
func (w *worker) takePutOff(now time.Time) {
	s := &w.state
	s.PutOff = nil
	if w.putOff.over || !s.MayBePutOff() {
		return
	}
	b, waits := evictions.Backoff{}, false
	if !s.HasStarted() {
		b, waits = w.reg.putOff(w.uid, now)
	}
	if waits {
		b.Until = s.PutOffUntil(b.Until, now)
		waits = now.Before(b.Until)
	}
	if !waits {
		w.putOff.over = true
		if !w.putOff.said.IsZero() {
			w.log.Info("The pod's start is put off no more")
			w.line.Note(timeline.Entry{What: "start is put off no more"})
		}
		return
	}
	s.PutOff = &podstate.PutOff{Until: b.Until, Reason: b.Reason(), Advice: putOffAdvice}
	again := !w.putOff.said.IsZero() && b.Evicted == w.putOff.of // It is another one's turn.
	if b.Until.Equal(w.putOff.said) || again {
		w.putOff.said = b.Until
		return
	}
	if w.putOff.said.IsZero() {
		w.reg.deps.Metrics.startPutOff(b.Conditions)
	}
	w.putOff.said, w.putOff.of = b.Until, b.Evicted
	w.log.Info("The pod's start is put off: the node has evicted others of its controller and is still short", "after", b.Until.Sub(now).Round(time.Millisecond), "pods", b.Evicted)
	w.line.Note(timeline.Entry{What: "start is put off", Detail: b.Reason()})
	if last := &w.putOff; last.event.IsZero() || now.Sub(last.event) >= eventAgain || b.Evicted >= 2*last.evicted {
		last.event, last.evicted = now, b.Evicted
		w.reg.deps.Events.Pod(s.Pod, v1.EventTypeWarning, "BackOff", b.Event(now))
	}
}

// putOff says whether a pod that was admitted and has not begun is not to start yet. It
// is rung when that may have changed.
func (r *Registry) putOff(uid types.UID, now time.Time) (evictions.Backoff, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.pods[uid]
	if r.deps.Short == nil || h.pod == nil {
		return evictions.Backoff{}, false
	}
	b, waits := r.evictions.Turn(h.pod, r.deps.Short(), now)
	h.putOff = waits
	return b, waits
}

// PressureChanged tells that the node may be short of something else than before.
func (r *Registry) PressureChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shortLocked()
	r.ringPutOffLocked()
}

// shortLocked takes in what the node is short of.
func (r *Registry) shortLocked() {
	if r.deps.Short != nil {
		r.evictions.Told(r.deps.Short())
	}
}

// ringPutOffLocked has those ask again whose start is put off.
func (r *Registry) ringPutOffLocked() {
	for _, h := range r.pods {
		if h.putOff {
			h.inbox.ring()
		}
	}
}

// evictedLocked keeps that a pod was evicted, if its status says so. witnessed: it ended
// in this run.
func (r *Registry) evictedLocked(pod *v1.Pod, st *v1.PodStatus, witnessed bool) {
	e, ok := evictions.Of(pod, st)
	if !ok {
		return
	}
	if e.Witnessed = witnessed; r.evictions.Add(e, time.Now()) {
		r.ringPutOffLocked()
	}
}

// evicted is told of each status in which the pod has come to its end.
func (w *worker) evicted(old, now *v1.PodStatus) {
	if w.state.Pod == nil || podutil.TerminalPhase(old.Phase) || !podutil.TerminalPhase(now.Phase) {
		return
	}
	w.reg.mu.Lock()
	defer w.reg.mu.Unlock()
	w.reg.evictedLocked(w.state.Pod, now, true)
}
