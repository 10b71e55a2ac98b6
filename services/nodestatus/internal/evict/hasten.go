package evict

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// hastens says whether a pod that is being stopped has more time than a hard threshold
// leaves it.
func (l *Loop) hastens(m pressure.Met) bool {
	for _, s := range l.stopping {
		if tooSlow(s, m) {
			return true
		}
	}
	return false
}

// tooSlow says whether a soft threshold has given a pod time that the node does not have
// any more: it would be waited for, and nobody else goes.
func tooSlow(s *stopping, m pressure.Met) bool {
	return m.Hard && s.kind == pressure.KindOf(m.Signal) && !s.limit && s.grace > eviction.Immediate && s.ended.IsZero() && s.ask == nil
}

// hasten takes from such pods the rest of their time. podsync lets the first reason stand.
// Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#hard-eviction-thresholds
func (l *Loop) hasten(ctx context.Context, m pressure.Met) {
	for _, s := range l.stopping {
		if !tooSlow(s, m) {
			continue
		}
		s.at, s.grace, s.available, s.sure = time.Now(), eviction.Immediate, m.By.Available, false
		s.stop.Grace = eviction.Immediate
		l.note(ctx, Decision{
			Shortage: shortage(m), Outcome: Hastened, Chosen: ref(s.pod), Grace: s.grace,
			Why: fmt.Sprintf("pod %s is being stopped, and a hard threshold leaves it none of the time that it was given", klog.KObj(s.pod)),
		})
		l.ask(ctx, s)
	}
}
