package evict

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
	"github.com/polylet/polylet/services/nodestatus/internal/threshold"
)

const (
	// lateness is how long beyond its grace period a pod is waited for.
	lateness = 30 * time.Second
	// least is what the runtime gives a pod at least, and a little.
	least = 2500 * time.Millisecond
	// emptying is how long after a pod's end its volumes may take to go.
	emptying = 10 * time.Second
)

// stopping is a pod that was stopped and may not have ended.
type stopping struct {
	pod *v1.Pod
	// kind is of what was short, available what was left then.
	kind      pressure.Kind
	available uint64
	// at is when it was stopped, grace how long it may take.
	at    time.Time
	grace time.Duration
	// ended is when it was seen to have ended; measured when figures were asked for.
	ended, measured time.Time
	// unsure is nil once podsync has said that it keeps the stop.
	unsure *unsure
}

// unsure is a stop that podsync may have taken, though it did not say so: the same
// pod is asked for again, for it may be ending, and another would go for nothing.
type unsure struct {
	stop     Stop
	decision Decision
	signal   string
	// asked is when podsync was asked last; ending is whether it said that the pod
	// ends all the same.
	asked  time.Time
	ending bool
}

// given is until when the pod may use its grace period.
func (s *stopping) given() time.Time { return s.at.Add(max(s.grace, least)) }

// next is when to look at it again though nothing is heard. missing: podsync does not
// know it.
func (s *stopping) next(now time.Time, missing bool) time.Time {
	at := s.at.Add(s.grace + lateness)
	earlier := func(other time.Time) {
		if other.Before(at) {
			at = other
		}
	}
	if !s.ended.IsZero() {
		earlier(s.ended.Add(emptying))
		return at
	}
	if s.unsure != nil {
		earlier(s.unsure.asked.Add(soon))
	}
	if given := s.given(); missing || now.After(given) {
		earlier(s.measured.Add(soon))
	} else {
		earlier(given.Add(time.Millisecond))
	}
	return at
}

// settle looks which pods have ended, or were waited for long enough.
func (l *Loop) settle(ctx context.Context, j pressure.Judgement, layout threshold.Layout) {
	log, unseen := klog.FromContext(ctx), l.unseen(ctx)
	for uid, s := range l.stopping {
		now := time.Now()
		ended, missing := l.ends.of(uid) // Who is missing may be gone, or podsync was just started.
		if s.ended.IsZero() && ended {
			s.ended = now
		}
		if s.ended.IsZero() && s.unsure != nil && now.Sub(s.unsure.asked) >= soon && !l.repeat(ctx, s) {
			delete(l.stopping, uid)
			continue
		}
		if s.ended.IsZero() && (missing || now.After(s.given())) && now.Sub(s.measured) >= soon {
			s.measured = now
			if unseen(uid) {
				s.ended = now
			}
		}
		if s.ended.Equal(now) {
			l.clear(ctx, s, j, layout)
		}
		switch {
		case !s.ended.IsZero() && (s.kind != pressure.Disk || !short(j, s.kind) || now.Sub(s.ended) >= emptying):
			log.Info("Pod that was evicted has ended", "pod", klog.KObj(s.pod), "took", s.ended.Sub(s.at).Round(time.Millisecond))
		case now.Sub(s.at) >= s.grace+lateness:
			log.Info("Pod that was evicted has not ended in its time, going on without it", "pod", klog.KObj(s.pod), "after", now.Sub(s.at).Round(time.Second))
			if s.unsure == nil || s.unsure.ending {
				l.skip[uid] = now.Add(unserved)
			}
		default:
			continue
		}
		delete(l.stopping, uid)
		l.after = now
	}
}

// clear has what a pod that has ended leaves on a disk freed: the runtime keeps its
// containers' layers until they are removed.
func (l *Loop) clear(ctx context.Context, s *stopping, j pressure.Judgement, layout threshold.Layout) {
	if s.kind != pressure.Disk || l.reclaim != nil {
		return
	}
	for _, m := range eviction.Order(j.Due) {
		if pressure.KindOf(m.Signal) == pressure.Disk {
			if !l.reclaimed(ctx, m, layout) && l.reclaim != nil {
				l.reclaim.behind = true
			}
			return
		}
	}
}

// repeat asks for a stop again of which it is not known whether podsync keeps it;
// false: the pod is not to be waited for.
func (l *Loop) repeat(ctx context.Context, s *stopping) bool {
	u := s.unsure
	already, err := l.deps.Podsync.StopPod(ctx, u.stop)
	u.asked = time.Now()
	switch {
	case err == nil:
		l.note(ctx, l.taken(u.decision, u.signal, false)) // It was stopped by an earlier call of this.
		s.unsure = nil
		if !already {
			s.at = u.asked
		}
	case errors.Is(err, rpcerr.ErrNotFound):
		s.ended = u.asked
	case errors.Is(err, rpcerr.ErrPrecondition), errors.Is(err, rpcerr.ErrUnimplemented):
		l.skip[s.pod.UID] = u.asked.Add(unserved)
		return false
	case errors.Is(err, rpcerr.ErrInternal):
		u.ending = true
	}
	return true
}

// unseen says of pods whether stats sees nothing of them any more: without the apiserver
// podsync's list keeps the status that a pod had. It is asked once, and only when
// somebody wants to know.
func (l *Loop) unseen(ctx context.Context) func(uid types.UID) bool {
	ask := sync.OnceValues(func() (eviction.Figures, error) {
		summary, err := l.deps.Stats.Summary(ctx, Brief)
		if err != nil {
			return nil, err
		}
		return eviction.FiguresOf(summary), nil
	})
	return func(uid types.UID) bool {
		figures, err := ask()
		if err != nil {
			return false
		}
		s := figures[string(uid)]
		return s == nil || s.Memory == nil || s.Memory.WorkingSetBytes == nil || *s.Memory.WorkingSetBytes == 0
	}
}

func short(j pressure.Judgement, kind pressure.Kind) bool {
	for _, m := range j.Due {
		if pressure.KindOf(m.Signal) == kind {
			return true
		}
	}
	return false
}

// blocked says whether a stop has to have its effect before something is done about
// m. A hard threshold of memory waits for a pod that frees memory only, and no longer
// than that pod was given if still less is left then.
func (l *Loop) blocked(m pressure.Met) bool {
	now := time.Now()
	for _, s := range l.stopping {
		if !m.Hard || pressure.KindOf(m.Signal) != pressure.Memory {
			return true
		}
		given := s.given()
		less := now.After(given) && age(m.By, now) < now.Sub(given) && m.By.Available < s.available
		if s.kind == pressure.Memory && !less {
			return true
		}
	}
	return false
}

// age is how old a signal is. Both times are of this machine's clock.
func age(s pressure.Signal, now time.Time) time.Duration { return now.Sub(s.Time) }
