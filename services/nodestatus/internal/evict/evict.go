// Package evict acts when the node is short of something: it tells podsync at once,
// has it reclaim what nobody needs, and has it stop one pod at a time until enough is
// there; and it ends pods that use more local storage than they may.
//
// It owns which stops are under way and why each decision was made. It must never
// judge by old figures, and never choose a pod by itself: package eviction does.
package evict

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

const (
	// interval is between two looks at limits of local storage, and between two
	// attempts when nobody can be evicted.
	interval = 10 * time.Second
	// oldest is how old figures may be that are acted upon.
	oldest = 15 * time.Second
	// soon is when to look again after figures were not to be had.
	soon = time.Second
	// unserved is when to ask a podsync again that does not know a call.
	unserved = time.Minute
	// gathering is how long a podsync that was just started is given to hear of all its
	// pods before one of those that it knows goes: its sources may be away for long.
	gathering = 10 * time.Second
)

// Config says how evictions go.
type Config struct {
	// LongestGrace is evictionMaxPodGracePeriod.
	LongestGrace time.Duration
	// LocalLimits is whether limits of local storage are enforced.
	LocalLimits bool
}

// Judge says how the node stands.
type Judge interface {
	// Judge judges the newest signals; known is false while there are none.
	Judge(now time.Time) (judgement pressure.Judgement, frame pressure.Frame, known bool)
	// Seeded says whether what a run before this one found is part of the judgement.
	Seeded() bool
}

// Stop is what podsync is told of a pod that has to go.
type Stop struct {
	Pod     *v1.Pod
	Message string
	// Signal is what it was chosen by; empty where it has exceeded a limit.
	Signal string
	// Grace is how long it may take.
	Grace time.Duration
	// Disruption is whether its condition DisruptionTarget says so, too.
	Disruption bool
	// Annotations are those of the event.
	Annotations map[string]string
}

// Reclaimed is what was freed.
type Reclaimed struct {
	// Epoch is of the podsync that was known when it was asked; 0: none was.
	Epoch              uint64
	Containers, Images uint32
	ImageBytes         uint64
	// Failed is what could not be.
	Failed []string
}

// Pods are those of the node; they must not be changed.
type Pods struct {
	// Epoch is another one of each podsync that is started; 0: it does not say.
	Epoch uint64
	Pods  []*v1.Pod
	// Partial: podsync was just started, and there may be others.
	Partial bool
	// Endings are those that podsync ends for a reason of the node's own and of which
	// something is left; EndingsKnown: it says so, being no older one.
	Endings      map[types.UID]Ending
	EndingsKnown bool
}

// Podsync does it. Errors wrap a class of rpcerr.
type Podsync interface {
	// Pods are those of the node.
	Pods(ctx context.Context) (Pods, error)
	// FollowEnds has saw called with which pods there are and whether nothing of them
	// runs any more, at first and after each change, until ctx is done or podsync is
	// away.
	FollowEnds(ctx context.Context, saw func(ended map[types.UID]bool)) error
	// StopPod returns when the stop is taken; already is whether it was before.
	StopPod(ctx context.Context, stop Stop) (already bool, err error)
	// Reclaim returns when what can be is freed. An error of ErrUnavailable, ErrTimeout or a
	// context's says that podsync did not do it, or not all of it.
	Reclaim(ctx context.Context, what eviction.Reclaim) (Reclaimed, error)
	// SetPressure tells which conditions hold, for so long.
	SetPressure(ctx context.Context, conditions []string, ttl time.Duration) error
}

// Detail is what is asked of figures.
type Detail int

// Details.
const (
	// Brief is CPU and memory only.
	Brief Detail = iota
	// Full is all, as it was measured last, with threads for processes.
	Full
)

// Stats has the figures.
type Stats interface {
	Summary(ctx context.Context, detail Detail) (*statsapi.Summary, error)
	// Weighed is all, and the runtime is asked what layers weigh; unsure are the pods whose figures
	// are not to be believed alone: others may have a part in them, or they are of many times.
	Weighed(ctx context.Context) (summary *statsapi.Summary, unsure map[types.UID]bool, err error)
	// Renewed is all, and what these pods have on disks, or all if there are none, is measured
	// anew that was not since a time, or whenever it was if that is zero. Of those that are late
	// it was not in the time that there is.
	Renewed(ctx context.Context, since time.Time, pods ...types.UID) (summary *statsapi.Summary, late eviction.Late, err error)
	// Unlinked are the files without a name that containers hold open, by pod; all:
	// there was time to look at every one; late are the pods of which there was not, none
	// where that is not known.
	Unlinked(ctx context.Context) (files map[types.UID][]eviction.Unlinked, late map[types.UID]bool, all bool, err error)
}

// Events takes what happened to the Node.
type Events interface {
	Send(ctx context.Context, e node.Event)
}

// Deps is what a Loop is given.
type Deps struct {
	Judge   Judge
	Podsync Podsync
	Stats   Stats
	Events  Events
	// Moved receives after signals came.
	Moved <-chan struct{}
	// Metrics may be nil.
	Metrics *Metrics
}

// Loop evicts. Safe for concurrent use; Run runs once.
type Loop struct {
	cfg   Config
	deps  Deps
	began time.Time
	tell  wake.Signal
	// forgotten is whether podsync has to be told again of pressure.
	forgotten atomic.Bool
	kept      records

	// The rest belongs to Run's goroutine.

	// stopping are the pods that were stopped and may not have ended.
	stopping map[types.UID]*stopping
	ends     *ends
	// skip are pods that podsync would not stop, and until when they are left alone.
	skip map[types.UID]time.Time
	// after is since when the last thing that was done has had its effect: figures
	// from before say nothing about it.
	after time.Time
	// next is when to try again at the earliest, by signal; limitsAt when limits are
	// looked at.
	next     map[string]time.Time
	limitsAt time.Time
	// since is, by signal, how old figures of disks may be for the pod that is being chosen.
	since map[string]time.Time
	// awaited is, by signal, for how long was waited for such figures.
	awaited map[string]awaited
	// measuring is disks being measured, or done; nil when nothing is.
	measuring *measuring
	// limits is a look at them that is under way; nil when none is.
	limits *limits
	// suspects are the pods that would be over a limit by files that they hold open,
	// heldNext is when those are looked at again. Both belong to limits' own goroutine.
	suspects map[types.UID]suspect
	heldNext time.Time
	// watched are those that are or were suspects of late, moreWatched is whether some were told of
	// by number. silent is how many looks in a row stats did not answer. All of it is limits', too.
	watched     map[types.UID]*watched
	moreWatched bool
	silent      int
	silentSince time.Time
	// partial is since when podsync has known a part of its pods only; zero: it knows all.
	partial time.Time
	// reclaim is under way, or done and not used yet; nil when nothing is.
	reclaim *reclaim
	// barren are those that found nothing when they were tried last.
	barren map[eviction.Reclaim]*barren
	// undone are those that podsync never did, of late.
	undone  undone
	running sync.WaitGroup
	// answered is set when what was asked beside the loop was answered.
	answered wake.Signal
	told     map[v1.ResourceName]time.Time
}

// New returns a Loop; it starts nothing.
func New(cfg Config, deps Deps) *Loop {
	return &Loop{
		cfg: cfg, deps: deps, began: time.Now(), tell: wake.New(), answered: wake.New(),
		stopping: map[types.UID]*stopping{}, skip: map[types.UID]time.Time{}, told: map[v1.ResourceName]time.Time{},
		next: map[string]time.Time{}, since: map[string]time.Time{}, awaited: map[string]awaited{}, ends: newEnds(deps.Podsync),
		barren: map[eviction.Reclaim]*barren{},
	}
}

// Run acts until ctx is done.
func (l *Loop) Run(ctx context.Context) error {
	defer l.running.Wait()
	defer l.ends.follow(ctx, false)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var reclaimed <-chan struct{}
		if l.reclaim != nil && !l.reclaim.heard {
			reclaimed = l.reclaim.done
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-l.deps.Moved:
		case <-l.ends.heard:
		case <-l.answered:
		case <-reclaimed:
			l.reclaim.heard = true
		}
		l.tell.Set()
		wait := l.look(ctx)
		l.ends.follow(ctx, len(l.stopping) > 0)
		timer.Reset(wait)
	}
}

// look does what is to be done now, and returns when to look again though nothing
// is heard.
func (l *Loop) look(ctx context.Context) time.Duration {
	now := time.Now()
	maps.DeleteFunc(l.skip, func(_ types.UID, until time.Time) bool { return !now.Before(until) })
	judgement, frame, known := l.deps.Judge.Judge(now)
	if len(l.stopping) > 0 {
		l.hear(ctx)
		l.settle(ctx, judgement, frame.Layout)
	}
	if l.limits != nil {
		l.endBreaches(ctx)
	}
	if l.cfg.LocalLimits && l.limits == nil && !now.Before(l.limitsAt) && !l.weighing() {
		l.limitsAt = now.Add(interval)
		l.enforceLimits(ctx, frame.Layout)
	}
	if known {
		filled := short(judgement, pressure.Disk)
		l.undone.lapse(frame.Heard, filled)
		if !filled && l.reclaim != nil && l.reclaim.finished() {
			l.over(ctx, frame.Signals, now)
		}
		l.relieve(ctx, eviction.Order(judgement.Due), frame)
	}
	return l.wait(judgement)
}

// wait is how long nothing has to be looked at unless something is heard.
func (l *Loop) wait(j pressure.Judgement) time.Duration {
	now := time.Now()
	out := interval
	until := func(at time.Time) { out = min(out, max(at.Sub(now), time.Millisecond)) }
	switch {
	case !l.cfg.LocalLimits || l.limits != nil || l.measures():
	case l.weighing():
		until(l.measuring.at.Add(newly))
	default:
		until(l.limitsAt)
	}
	if !j.Again.IsZero() {
		until(j.Again.Add(time.Millisecond))
	}
	for uid, s := range l.stopping {
		_, missing := l.ends.of(uid)
		until(s.next(now, missing, l.again(s, j)))
	}
	for _, m := range j.Due {
		if at := l.next[m.Signal]; at.After(now) {
			until(at)
		}
	}
	return out
}
