package evict

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// silentLooks is how many looks in a row stats does not answer before that is told: it may be just
// starting.
const silentLooks = 2

// limits is a look at who uses more local storage than it may, beside the loop: the
// runtime is asked for it, which may take long.
type limits struct {
	done chan struct{}
	// breaches and figures are set when done is closed.
	breaches []eviction.Breach
	figures  eviction.Figures
}

// enforceLimits begins a look at the limits of local storage.
func (l *Loop) enforceLimits(ctx context.Context, layout threshold.Layout) {
	alone := map[types.UID]bool{}
	for uid := range l.stopping {
		alone[uid] = true
	}
	for uid := range maps.Keys(l.skip) {
		alone[uid] = true
	}
	look := &limits{done: make(chan struct{})}
	l.limits = look
	l.running.Go(func() {
		look.breaches, look.figures = l.breaches(ctx, layout, alone)
		close(look.done)
		l.answered.Set()
	})
}

// breaches are the pods beside those that use more local storage than they may.
func (l *Loop) breaches(ctx context.Context, layout threshold.Layout, beside map[types.UID]bool) ([]eviction.Breach, eviction.Figures) {
	all, err := l.deps.Podsync.Pods(ctx)
	if err != nil {
		return nil, nil // Health says that podsync is away.
	}
	pods := slices.DeleteFunc(slices.Clone(all.Pods), func(pod *v1.Pod) bool {
		_, ending := all.Endings[pod.UID]
		return ending || beside[pod.UID] || eviction.Ended(pod) || !eviction.Limited(pod)
	})
	if len(pods) == 0 {
		l.suspects = nil
		if !all.Partial {
			l.tellWatched(ctx, nil, nil, beside)
		}
		return nil, nil
	}
	summary, unsure, err := l.deps.Stats.Weighed(ctx)
	if l.tellSilence(ctx, err); err != nil {
		return nil, nil
	}
	figures := eviction.FiguresOf(summary)
	out := eviction.Breaches(pods, figures, nil, layout)
	out = slices.DeleteFunc(out, func(b eviction.Breach) bool { return unsure[b.Pod.UID] || b.Sum })
	rest := slices.DeleteFunc(pods, func(pod *v1.Pod) bool {
		return slices.ContainsFunc(out, func(b eviction.Breach) bool { return b.Pod == pod })
	})
	out = append(out, l.doubtful(ctx, rest, figures, unsure, layout)...)
	if !all.Partial { // Who is missing may not have ended.
		l.tellWatched(ctx, rest, out, beside)
	}
	return out, figures
}

// tellSilence tells of stats that does not answer, and that it does again: each once.
func (l *Loop) tellSilence(ctx context.Context, err error) {
	log := klog.FromContext(ctx)
	if err == nil {
		if l.silent >= silentLooks {
			log.Info("Limits of local storage are looked at again, stats answers", "after", time.Since(l.silentSince).Round(time.Second))
		}
		l.silent = 0
		return
	}
	if ctx.Err() != nil {
		return // Nobody looks at them any more.
	}
	if l.silent++; l.silent == 1 {
		l.silentSince = time.Now()
	}
	level := 2
	if l.silent == silentLooks {
		level = 0
	}
	log.V(level).Info("Limits of local storage are not looked at, stats does not answer; no pod is ended by one meanwhile", "err", err)
}

// endBreaches has podsync stop the pods that a look has found.
func (l *Loop) endBreaches(ctx context.Context) {
	select {
	case <-l.limits.done:
	default:
		return
	}
	found := l.limits
	l.limits = nil
	if at := time.Now().Add(soon); l.limitsAt.Before(at) {
		l.limitsAt = at // A disk that is short has its turn between two that take long.
	}
	for _, b := range found.breaches {
		if l.leftAlone(b.Pod) != "" {
			continue // It was chosen meanwhile.
		}
		d := Decision{
			Shortage: Shortage{Signal: b.Signal, Threshold: b.Limit, Available: b.Used, Hard: true}, Chosen: ref(b.Pod), Grace: eviction.Immediate,
			Why: "it uses more local storage than it may: " + b.Message,
		}
		if parts := eviction.Parts(b.Pod, found.figures[string(b.Pod.UID)]); b.Sum && parts != "" {
			d.Why += "; " + parts
		}
		d.holds(b.Unlinked)
		l.stop(ctx, &stopping{
			pod: b.Pod, kind: pressure.Disk, limit: true, grace: eviction.Immediate, figures: found.figures[string(b.Pod.UID)], signal: b.Signal,
			stop: Stop{Pod: b.Pod, Message: b.Message, Grace: eviction.Immediate}, decision: d,
		})
	}
}
