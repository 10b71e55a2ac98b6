package evict

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// prompt is how fast a podsync answers that is not hung as a whole.
const prompt = 500 * time.Millisecond

// ask is podsync being asked to stop a pod, beside the loop: memory that runs out does
// not wait for an answer.
type ask struct {
	done chan struct{}
	// already, err and at, which is when, are set when done is closed.
	already bool
	err     error
	at      time.Time
}

func (a *ask) finished() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// stop has podsync stop a pod, which then counts as one that may be ending.
func (l *Loop) stop(ctx context.Context, s *stopping) {
	s.at = time.Now()
	s.chosen = s.at
	l.stopping[s.pod.UID] = s
	l.ask(ctx, s)
}

func (l *Loop) ask(ctx context.Context, s *stopping) {
	a, stop := &ask{done: make(chan struct{})}, s.stop
	s.ask = a
	l.running.Go(func() {
		a.already, a.err = l.deps.Podsync.StopPod(ctx, stop)
		a.at = time.Now()
		close(a.done)
		l.answered.Set()
	})
}

// hear takes in what podsync has answered meanwhile.
func (l *Loop) hear(ctx context.Context) {
	for _, s := range l.stopping {
		l.hearOf(ctx, s)
	}
}

// hearOf takes in what podsync has answered about a pod, which may not be waited for after
// that.
func (l *Loop) hearOf(ctx context.Context, s *stopping) {
	if s.ask == nil || !s.ask.finished() || ctx.Err() != nil {
		return
	}
	a, first := s.ask, s.answered.IsZero()
	s.ask, s.answered = nil, a.at
	if first {
		l.note(ctx, l.first(s, a))
	} else {
		l.later(ctx, s, a)
	}
}

// first takes in the first answer about a pod, and is what came of the decision.
func (l *Loop) first(s *stopping, a *ask) Decision {
	d := s.decision
	switch {
	case a.err == nil:
		s.sure, s.counted = true, true
		d = l.taken(d, s.signal, a.already)
	case errors.Is(a.err, rpcerr.ErrNotFound):
		// It has just ended, and what it used comes free.
		l.leave(s, lateness)
		l.after = a.at
		d.because(Held, "the pod that would have gone has ended by itself")
	case errors.Is(a.err, rpcerr.ErrPrecondition), errors.Is(a.err, rpcerr.ErrInvalid):
		l.leave(s, unserved)
		d.because(Refused, a.err.Error())
	case errors.Is(a.err, rpcerr.ErrUnimplemented):
		delete(l.stopping, s.pod.UID)
		l.next[s.signal] = a.at.Add(unserved)
		d.because(Refused, "podsync is of an older release, which stops no pod for nodestatus; update it")
	default:
		s.ending = errors.Is(a.err, rpcerr.ErrInternal)
		d.because(Refused, a.err.Error())
	}
	return d
}

// later takes in an answer about a pod that was asked for before.
func (l *Loop) later(ctx context.Context, s *stopping, a *ask) {
	switch {
	case a.err == nil:
		if !s.counted { // Else it has less time now, and it is the same eviction.
			l.note(ctx, l.taken(s.decision, s.signal, false)) // It was stopped by an earlier call of this.
		}
		s.sure, s.counted = true, true
		if !a.already {
			s.at = a.at
		}
	case errors.Is(a.err, rpcerr.ErrNotFound):
		s.ended, s.leaves = a.at, true
		l.after = a.at
		l.unkept(ctx, s)
	case errors.Is(a.err, rpcerr.ErrPrecondition), errors.Is(a.err, rpcerr.ErrUnimplemented):
		l.leave(s, unserved)
	case errors.Is(a.err, rpcerr.ErrInternal):
		s.ending = true
	}
}

// leave has a pod not waited for any more, and left alone for a while.
func (l *Loop) leave(s *stopping, d time.Duration) {
	delete(l.stopping, s.pod.UID)
	l.skip[s.pod.UID] = time.Now().Add(d)
}

// again says whether podsync is to be asked once more for a stop of which it did not say
// that it keeps it: the pod may be ending, and another would go for nothing. One that it
// said goes on is to be kept. Another one is asked for as long as there is a shortage,
// and only when none that was chosen before may be enough: a podsync that comes back
// after it hung does not end all that were chosen meanwhile.
func (l *Loop) again(s *stopping, j pressure.Judgement) bool {
	switch {
	case s.sure || s.ask != nil || !s.ended.IsZero():
		return false
	case s.ending || s.limit:
		return true
	case !short(j, s.kind):
		return false
	}
	now := time.Now()
	for _, other := range l.stopping {
		if other.kind == s.kind && !other.limit && other.ended.IsZero() && other.chosen.Before(s.chosen) && !(other.sure && now.After(other.given())) {
			return false
		}
	}
	return true
}

// taken is the decision once podsync keeps the stop.
func (l *Loop) taken(d Decision, signal string, already bool) Decision {
	d.Outcome = Evicted
	if already {
		d.because(Evicted, "it was being stopped already, and is waited for")
	} else {
		l.deps.Metrics.evicted(signal)
	}
	return d
}

// unkept takes in that a pod has ended which podsync said that it ends, but could not keep
// that over a restart: it was evicted, and nobody says so any more.
func (l *Loop) unkept(ctx context.Context, s *stopping) {
	if s.ending && !s.counted {
		s.counted = true
		l.note(ctx, l.taken(s.decision, s.signal, false))
	}
}

// unheard is a pod of a kind of shortage of which podsync has not said yet whether it
// stops it; nil when there is none.
func (l *Loop) unheard(kind pressure.Kind) *stopping {
	for _, s := range l.stopping {
		if s.kind == kind && !s.goes() && s.ended.IsZero() {
			return s
		}
	}
	return nil
}

// Ending is a pod that podsync ends for a reason of the node's own.
type Ending struct {
	// Namespace and Name are the pod's, whose source may not have it any more; empty where
	// an older podsync does not say.
	Namespace, Name string
	Reason, Message string
	// Signal is what it was chosen by; empty where podsync does not say.
	Signal string
	// Since is when it was told to, or was started since; Grace is how long the pod may
	// take.
	Since time.Time
	Grace time.Duration
	// Ended: only volumes are left.
	Ended bool
}

// overdue says of a pod that podsync ends whether it has had its time: nothing comes of
// asking again, and it would be waited for once more while others could go. The zero value
// is none.
func overdue(e Ending) string {
	if e.Since.IsZero() || time.Since(e.Since) < e.Grace+lateness {
		return ""
	}
	return "it is being stopped, and has not ended in its time"
}

// adopt takes in the pods that podsync ends by what a run before this one has decided:
// else another would go for the same shortage.
func (l *Loop) adopt(ctx context.Context, pods Pods, m pressure.Met) {
	now := time.Now()
	for _, pod := range beingEnded(pods) {
		e := pods.Endings[pod.UID]
		if e.Reason != eviction.Reason || l.stopping[pod.UID] != nil || now.Before(l.skip[pod.UID]) || overdue(e) != "" {
			continue
		}
		s := &stopping{
			pod: pod, available: eviction.AvailableOf(e.Message, m.By.Available), at: e.Since, chosen: e.Since, grace: e.Grace, sure: true, counted: true, answered: now,
			stop: Stop{Pod: pod, Message: e.Message},
		}
		if s.kind, s.limit = eviction.KindOf(e.Message); e.Ended {
			if s.kind != pressure.Disk && pressure.KindOf(m.Signal) != pressure.Disk {
				continue
			}
			s.ended, s.leaves = now, true
		}
		switch s.signal = e.Signal; {
		case s.signal != "":
		case s.kind == pressure.Memory: // By which of memory's signals is not known.
			s.signal = threshold.Memory
		case s.kind == pressure.PID:
			s.signal = threshold.PID
		}
		l.stopping[pod.UID] = s
		klog.FromContext(ctx).Info("Pod is being stopped since before this process was started, and is waited for", "pod", klog.KObj(pod), "message", e.Message)
		l.note(ctx, Decision{
			Shortage: shortage(m), Outcome: Held, Chosen: ref(pod), Grace: e.Grace,
			Why: fmt.Sprintf("pod %s is being stopped since before nodestatus was started, and is waited for: %s", klog.KObj(pod), e.Message),
		})
	}
}

// beingEnded are the pods that podsync ends for a reason of the node's own: those that their
// sources have, and then the others, of which nothing but the name is known.
func beingEnded(pods Pods) (out []*v1.Pod) {
	desired := map[types.UID]bool{}
	for _, pod := range pods.Pods {
		if _, ending := pods.Endings[pod.UID]; ending {
			desired[pod.UID], out = true, append(out, pod)
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(pods.Endings)) {
		if e := pods.Endings[uid]; !desired[uid] && e.Name != "" {
			out = append(out, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, UID: uid}})
		}
	}
	return out
}
