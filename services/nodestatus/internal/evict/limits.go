package evict

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
	"github.com/polylet/polylet/services/nodestatus/internal/threshold"
)

// enforceLimits has podsync stop the pods that use more local storage than they may.
func (l *Loop) enforceLimits(ctx context.Context) {
	all, err := l.deps.Podsync.Pods(ctx)
	if err != nil {
		return // Health says that podsync is away.
	}
	pods := slices.DeleteFunc(slices.Clone(all.Pods), func(pod *v1.Pod) bool {
		return eviction.Ended(pod) || l.stopping[pod.UID] != nil || !eviction.Limited(pod) || l.leftAlone(pod) != ""
	})
	if len(pods) == 0 {
		return
	}
	summary, err := l.deps.Stats.Summary(ctx, Weighed)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Limits of local storage are not looked at, stats does not answer", "err", err)
		return
	}
	_, frame, _ := l.deps.Judge.Judge(time.Now())
	for _, b := range eviction.Breaches(pods, eviction.FiguresOf(summary), frame.Layout) {
		d := Decision{
			Shortage: Shortage{Signal: b.Signal, Threshold: b.Limit, Available: b.Used, Hard: true}, Chosen: ref(b.Pod), Grace: eviction.Immediate,
			Why: "it uses more local storage than it may: " + b.Message,
		}
		stop := Stop{Pod: b.Pod, Message: b.Message, Grace: eviction.Immediate}
		l.stop(ctx, d, stop, pressure.Met{Threshold: threshold.Threshold{Signal: b.Signal, Hard: true}})
	}
}
