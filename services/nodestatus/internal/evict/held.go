package evict

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
)

// share is the part of the time in which open files are looked at for limits: a container
// decides how many there are.
const share = 20

// seldom is how long suspects are left alone when one's directories took too long to be
// measured: those of all pods are for that.
const seldom = time.Minute

// suspect is a pod that is over a limit by what it holds open in files that were removed.
type suspect struct {
	// since is when it was seen first, files what it has held at least since then.
	since time.Time
	files []eviction.Unlinked
}

// heldBreaches are those of pods that use more local storage than they may because of
// files that were removed and are open. What was measured of directories before a file was
// removed has it, too. So who is over its limit twice, ten seconds apart, goes by what it
// held all the time and by directories that were measured meanwhile.
func (l *Loop) heldBreaches(ctx context.Context, pods []*v1.Pod, figures eviction.Figures, layout threshold.Layout) []eviction.Breach {
	began := time.Now()
	if began.Before(l.heldNext) || len(pods) == 0 {
		return nil
	}
	held, ok := l.held(ctx)
	l.heldNext = time.Now().Add(share * time.Since(began))
	before := l.suspects
	l.suspects = map[types.UID]suspect{}
	if !ok {
		return nil
	}
	var again []*v1.Pod
	for _, b := range eviction.Breaches(pods, figures, held, layout) {
		uid := b.Pod.UID
		s, twice := before[uid]
		if !twice {
			l.suspects[uid] = suspect{began, held[uid]}
			continue
		}
		again = append(again, b.Pod)
		l.suspects[uid] = suspect{s.since, eviction.Least(s.files, held[uid])}
	}
	if len(again) == 0 {
		return nil
	}
	return l.confirmed(ctx, again, layout)
}

// confirmed are the breaches of suspects that are so by figures from since they are.
func (l *Loop) confirmed(ctx context.Context, pods []*v1.Pod, layout threshold.Layout) []eviction.Breach {
	summary, late, err := l.deps.Stats.Renewed(ctx, time.Time{})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Pods that hold removed files open are not looked at, stats does not answer", "err", err)
		return nil
	}
	held, ok := l.held(ctx)
	if !ok {
		return nil
	}
	figures, sure := eviction.FiguresOf(summary), map[types.UID][]eviction.Unlinked{}
	for _, pod := range pods {
		if late.Directories[pod.UID] { // A file may count in a directory, too, that was measured before it was removed.
			figures[string(pod.UID)] = eviction.LayersAlone(figures[string(pod.UID)])
			l.heldNext = time.Now().Add(seldom)
		}
		s := l.suspects[pod.UID]
		sure[pod.UID] = eviction.Weighed(eviction.Least(s.files, held[pod.UID]), figures[string(pod.UID)], s.since)
	}
	return eviction.Breaches(pods, figures, sure, layout)
}

// held are the files without a name that pods hold open, as far as stats had time to look.
func (l *Loop) held(ctx context.Context) (files map[types.UID][]eviction.Unlinked, ok bool) {
	files, _, _, err := l.deps.Stats.Unlinked(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Open files without a name do not count for limits of local storage, stats does not answer", "err", err)
	}
	return files, err == nil
}
