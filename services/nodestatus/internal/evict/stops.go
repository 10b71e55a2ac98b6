package evict

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
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
	// kind is of what was short, available what was left then by a signal; limit: nothing
	// was, the pod went because of a limit of its own.
	kind      pressure.Kind
	signal    string
	available uint64
	limit     bool
	// figures are those by which it was chosen; nil when they are not known.
	figures *statsapi.PodStats
	// chosen is when it was chosen, at when it was stopped, grace how long it may take.
	chosen, at time.Time
	grace      time.Duration
	// ended is when it was seen to have ended; measured when figures were asked for, and
	// looked when podsync was asked for its volumes.
	ended, measured, looked time.Time
	// leaves: it went for a disk that was short, or one was when it ended, and what it
	// leaves there is waited for, though there is room for a moment then or meanwhile.
	leaves bool

	// stop and decision are what podsync is told and why; why is not known of what a run
	// before this one has decided.
	stop     Stop
	decision Decision
	// ask is podsync being asked; nil when it is not. answered is when it answered last.
	ask      *ask
	answered time.Time
	// sure: podsync keeps the stop; ending: it said that the pod ends all the same.
	sure, ending bool
	// counted: it has said so once, and the eviction counts.
	counted bool
}

// goes says whether podsync has said that it ends, whether it keeps that or not.
func (s *stopping) goes() bool { return s.sure || s.ending || s.counted }

// untaken says whether podsync has not said so when it was asked. Where it took it all the
// same, it names it when a pod is chosen next.
func (s *stopping) untaken() bool {
	return !s.goes() && s.ask == nil && !s.limit && s.ended.IsZero()
}

// unanswered says whether podsync has been asked for it, and has said nothing yet.
func (s *stopping) unanswered() bool { return s.ask != nil && s.answered.IsZero() }

// given is until when the pod may use its grace period.
func (s *stopping) given() time.Time { return s.at.Add(max(s.grace, least)) }

// next is when to look at it again though nothing is heard. missing: podsync does not
// know it; again: podsync is to be asked for it once more.
func (s *stopping) next(now time.Time, missing, again bool) time.Time {
	at := s.at.Add(s.grace + lateness)
	if !s.ended.IsZero() {
		at = s.ended.Add(emptying)
	}
	earlier := func(other time.Time) {
		if other.Before(at) {
			at = other
		}
	}
	if !s.ended.IsZero() {
		earlier(s.looked.Add(soon))
		if s.unanswered() {
			at = now.Add(lateness) // The answer is heard.
		}
		return at
	}
	if again {
		earlier(s.answered.Add(soon))
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
	log, unseen, emptied := klog.FromContext(ctx), l.unseen(ctx), l.emptied(ctx)
	for uid, s := range l.stopping {
		if l.hearOf(ctx, s); l.stopping[uid] != s {
			continue
		}
		now := time.Now()
		ended, missing := l.ends.of(uid) // Who is missing may be gone, or podsync was just started.
		newly := s.ended.IsZero()
		if newly && ended {
			s.ended = now
		}
		if s.ended.IsZero() && l.again(s, j) && now.Sub(s.answered) >= soon {
			l.ask(ctx, s)
		}
		if s.ended.IsZero() && (missing || now.After(s.given())) && now.Sub(s.measured) >= soon {
			s.measured = now
			if unseen(uid) {
				s.ended = now
			}
		}
		if newly && !s.ended.IsZero() {
			s.looked, l.after = now, now
			l.unkept(ctx, s)
			s.leaves = s.kind == pressure.Disk && !s.limit || short(j, pressure.Disk)
			clear(l.barren) // It leaves something.
			l.undone = undone{}
			l.clear(ctx, j, layout)
		}
		switch {
		case !s.ended.IsZero() && s.unanswered():
			continue // The decision is not told yet, and podsync answers soon, or not.
		case !s.ended.IsZero() && (!s.leaves || now.Sub(s.ended) >= emptying || l.freed(s, now, emptied)):
			log.Info("Pod that was evicted has ended", "pod", klog.KObj(s.pod), "took", s.ended.Sub(s.at).Round(time.Millisecond))
			if s.goes() { // podsync may say for long that it ends, of its network and volumes: it is not adopted.
				l.skip[uid] = now.Add(s.grace + lateness)
			}
		case s.untaken() && !short(j, s.kind):
			log.Info("Pod that was to be evicted is not waited for any more: podsync has not taken it, and nothing is short", "pod", klog.KObj(s.pod))
		case s.ended.IsZero() && now.Sub(s.at) >= s.grace+lateness:
			log.Info("Pod that was evicted has not ended in its time, going on without it", "pod", klog.KObj(s.pod), "after", now.Sub(s.at).Round(time.Second))
			if s.goes() {
				l.skip[uid] = now.Add(unserved)
			}
		default:
			continue
		}
		delete(l.stopping, uid)
		l.after = now
	}
}

// freed says whether what a pod that has ended had on a disk is gone: its volumes, and
// what the runtime kept of its containers.
func (l *Loop) freed(s *stopping, now time.Time, emptied func(types.UID) bool) bool {
	if now.Sub(s.looked) < soon {
		return false
	}
	s.looked = now
	if r := l.reclaim; r != nil && (!r.finished() || now.Before(r.at.Add(freeing))) {
		return false
	}
	return emptied(s.pod.UID)
}

// emptied says of pods that have ended whether podsync says that their volumes are gone.
// It is asked once, and only when somebody wants to know.
func (l *Loop) emptied(ctx context.Context) func(uid types.UID) bool {
	ask := sync.OnceValues(func() (Pods, error) { return l.deps.Podsync.Pods(ctx) })
	return func(uid types.UID) bool {
		pods, err := ask()
		if err != nil || !pods.EndingsKnown || pods.Partial {
			return false
		}
		_, left := pods.Endings[uid]
		return !left
	}
}

// clear has what a pod that has ended leaves on a disk freed, whatever it was stopped for:
// the runtime keeps its containers' layers until they are removed. What was reclaimed
// before was without those.
func (l *Loop) clear(ctx context.Context, j pressure.Judgement, layout threshold.Layout) {
	if l.reclaim != nil && !l.reclaim.finished() {
		return
	}
	for _, m := range eviction.Order(j.Due) {
		if pressure.KindOf(m.Signal) == pressure.Disk {
			l.reclaim = nil
			if !l.reclaimed(ctx, m, layout) && l.reclaim != nil {
				l.reclaim.behind = true
			}
			return
		}
	}
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

// blocked says whether a stop has to have its effect before something is done about m.
func (l *Loop) blocked(m pressure.Met, layout threshold.Layout) bool {
	now := time.Now()
	for _, s := range l.stopping {
		if s.holdsUp(m, layout, now) {
			return true
		}
	}
	return false
}

// holdsUp says whether a stop does. One that has ended does so only for what it may leave on
// a disk. A hard threshold of memory waits for a pod that frees
// memory only, and, as one of processes, no longer than that pod was given if still less is
// left then by the signal that it was chosen for, whether podsync has said that it stops it or not; processes wait for no other
// pod longer than that. No hard threshold waits for one to which a soft one of something
// else has given time. A pod that went because of a limit of its own is waited for only
// where what it had may be enough.
func (s *stopping) holdsUp(m pressure.Met, layout threshold.Layout, now time.Time) bool {
	kind, given := pressure.KindOf(m.Signal), s.given()
	less := m.Hard && kind != pressure.Disk && now.After(given) && age(m.By, now) < now.Sub(given) && s.signal == m.Signal && m.By.Available < s.available
	switch {
	case !s.ended.IsZero() && s.kind != pressure.Disk:
		return kind == pressure.Disk
	case s.limit:
		return !less && (s.ended.IsZero() || kind == pressure.Disk) && eviction.Enough(m, layout, s.pod, s.figures, now.Sub(s.at) < layersAge)
	case !m.Hard:
		return true
	case s.kind == kind:
		return !less
	case kind == pressure.Memory, s.grace > eviction.Immediate:
		return false
	case kind == pressure.PID:
		return s.ended.IsZero() && !now.After(given)
	}
	return true
}

// age is how old a signal is. Both times are of this machine's clock.
func age(s pressure.Signal, now time.Time) time.Duration { return now.Sub(s.Time) }
