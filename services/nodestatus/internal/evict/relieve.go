package evict

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// remeasured is when figures are asked for again that were from before, or said
// something else.
const remeasured = 200 * time.Millisecond

const (
	// layersAge is how old the runtime's figures of layers may be: it measures every ten
	// seconds. So long a pod is waited for that may have more than is known.
	layersAge = 12 * time.Second
	// newly is how old figures may be by which a pod is chosen, if they are of since then.
	newly = 3 * time.Second
)

// relieve does the next thing about each of what is short that is to be tried now. Who
// waits for something keeps no other up, and memory has its turn again when that took long.
func (l *Loop) relieve(ctx context.Context, due []pressure.Met, frame pressure.Frame) {
	began := time.Now()
	for _, m := range due {
		if time.Now().Before(l.next[m.Signal]) {
			continue
		}
		if m.By.Time.IsZero() {
			m.By.Time = frame.Heard
		}
		if l.try(ctx, m, due, frame.Layout); time.Since(began) > prompt {
			l.answered.Set()
			return
		}
	}
}

// try does the next thing about one of what is short.
func (l *Loop) try(ctx context.Context, m pressure.Met, due []pressure.Met, layout threshold.Layout) {
	now, disk := time.Now(), pressure.KindOf(m.Signal) == pressure.Disk
	waits := l.blocked(m, layout)
	if waits && !l.hastens(m) || disk && l.limits != nil {
		return // Who uses more than it may goes first, and may be enough.
	}
	if disk && !waits && (l.measures() || l.reclaim != nil && !l.reclaim.finished()) {
		return // The loop hears of its end.
	}
	if old := age(m.By, now).Abs(); old > oldest {
		if disk && l.reclaim != nil && l.reclaim.finished() {
			l.learn() // What came meanwhile it has not seen.
		}
		l.hold(ctx, m, soon, fmt.Sprintf("the newest figures are %s old: nobody knows whether it is still so", old.Round(time.Second)))
		return
	}
	if l.fromBefore(m.By, now) {
		return // New ones come.
	}
	detail := Brief
	if pressure.KindOf(m.Signal) != pressure.Memory {
		detail = Full
	}
	summary, err := l.deps.Stats.Summary(ctx, detail)
	if err != nil {
		l.hold(ctx, m, soon, fmt.Sprintf("stats does not say what the pods use: %v", err))
		return
	}
	observed := eviction.Observe(summary)
	m, confirmed := eviction.Confirm(m, observed)
	switch {
	case !pressure.Says(observed, m.Signal):
		l.hold(ctx, m, soon, "stats does not say how much is left: nobody knows whether it is still so")
	case l.fromBefore(m.By, now):
		l.next[m.Signal] = now.Add(remeasured)
	case !confirmed && l.reclaim.hasFreed(m.Signal):
		l.enough(ctx)
	case !confirmed:
		l.hold(ctx, m, remeasured, "a second look, which measures the pods, too, does not find it")
	case waits:
		l.hasten(ctx, m)
	case l.reclaimed(ctx, m, layout):
		l.evict(ctx, m, due, layout, summary)
	}
}

// fromBefore says whether a signal was measured before the last thing that was done
// had its effect.
func (l *Loop) fromBefore(s pressure.Signal, now time.Time) bool {
	return !l.after.IsZero() && !s.Time.IsZero() && age(s, now) >= now.Sub(l.after)
}

// hold notes that nothing is done, and when to try again.
func (l *Loop) hold(ctx context.Context, m pressure.Met, again time.Duration, why string) {
	l.next[m.Signal] = time.Now().Add(again)
	l.note(ctx, Decision{Shortage: shortage(m), Outcome: Held, Why: why})
}

// announce says on the Node that something is done, once per interval.
func (l *Loop) announce(ctx context.Context, m pressure.Met) {
	name := eviction.ResourceOf(m.Signal)
	if at, told := l.told[name]; told && time.Since(at) < interval {
		return
	}
	l.told[name] = time.Now()
	l.deps.Events.Send(ctx, node.Event{Type: v1.EventTypeWarning, Reason: "EvictionThresholdMet", Message: fmt.Sprintf("Attempting to reclaim %s", name)})
}

// evict has podsync stop the first pod that may be.
func (l *Loop) evict(ctx context.Context, m pressure.Met, due []pressure.Met, layout threshold.Layout, summary *statsapi.Summary) {
	asked, d := time.Now(), Decision{Shortage: shortage(m)}
	pods, ok := l.pods(ctx, m, layout)
	if !ok || l.outlived(ctx, m, pods) {
		return
	}
	f, since := found{figures: eviction.FiguresOf(summary)}, time.Time{}
	if pressure.KindOf(m.Signal) == pressure.Disk {
		k := l.measured(ctx, m)
		if k == nil {
			return // The loop hears of its end.
		}
		var err error
		if f, err = k.of(m); err != nil {
			l.hold(ctx, m, soon, err.Error())
			return
		}
		asked, since = k.asked, k.since
	}
	d.Why = f.but
	ranked := eviction.Rank(m.By, layout, pods.Pods, f.figures, f.unlinked)
	for i := range ranked {
		if ranked[i].Not == "" {
			ranked[i].Not = cmp.Or(l.leftAlone(ranked[i].Pod), overdue(pods.Endings[ranked[i].Pod.UID]))
		}
	}
	slices.SortStableFunc(ranked, func(a, b eviction.Candidate) int { return btoi(a.Not != "") - btoi(b.Not != "") })
	if pod := eviction.Unsure(m.By, layout, ranked, f.late); pod != nil {
		why := fmt.Sprintf("what pod %s/%s has on the disk was not all measured since it is short, and who has the most is not known", pod.Namespace, pod.Name)
		if l.awaits(m.Signal, asked, since) {
			l.hold(ctx, m, soon, why)
			return
		}
		d.Why += "; " + why
	}
	nobody := len(ranked) == 0 || ranked[0].Not != ""
	if !nobody && l.untried(ctx, m, layout) {
		return // The loop hears of its end.
	}
	l.chose(m.Signal)
	d.consider(ranked)
	l.announce(ctx, m)
	if pressure.KindOf(m.Signal) == pressure.Disk {
		if l.reclaim != nil {
			d.Reclaimed = l.learn().result()
		}
		l.undone.spent = false
	}
	if nobody {
		l.next[m.Signal] = time.Now().Add(interval)
		d.Outcome, d.Why = Nobody, "no pod may be evicted of which it is known what it uses"+d.Why
		l.note(ctx, d)
		return
	}
	chosen := ranked[0]
	stop := Stop{Pod: chosen.Pod, Signal: m.Signal, Grace: eviction.Grace(m.Threshold, chosen.Pod, l.cfg.LongestGrace), Disruption: true}
	stop.Message, stop.Annotations = eviction.Message(m, chosen.Pod, f.figures[string(chosen.Pod.UID)])
	d.Chosen, d.Grace = ref(chosen.Pod), stop.Grace
	d.Why = why(m.Signal, chosen) + d.Why
	d.holds(chosen.Unlinked)
	l.deps.Metrics.acted(due)
	l.stop(ctx, &stopping{
		pod: chosen.Pod, kind: pressure.KindOf(m.Signal), available: m.By.Available, grace: stop.Grace, stop: stop, decision: d, signal: m.Signal,
	})
}

// pods are those to choose from; ok is false when none is to be chosen now.
func (l *Loop) pods(ctx context.Context, m pressure.Met, layout threshold.Layout) (pods Pods, ok bool) {
	asked := time.Now()
	if pods, ok = l.allKnown(ctx, m); !ok {
		if r := l.reclaim; r != nil && r.finished() && pressure.KindOf(m.Signal) == pressure.Disk {
			l.learn() // What comes meanwhile it has not seen.
		}
		return pods, false
	}
	l.hear(ctx)
	l.adopt(ctx, pods, m)
	if s := l.unheard(pressure.KindOf(m.Signal)); s != nil && time.Since(asked) > prompt {
		l.hold(ctx, m, soon, fmt.Sprintf("podsync is slow to answer, and has not said yet whether it stops pod %s/%s", s.pod.Namespace, s.pod.Name))
		return pods, false
	}
	return pods, !l.blocked(m, layout)
}

// allKnown are podsync's pods; ok is false when it does not say which there are, or is to be
// given time to hear of all.
func (l *Loop) allKnown(ctx context.Context, m pressure.Met) (pods Pods, ok bool) {
	pods, err := l.deps.Podsync.Pods(ctx)
	switch {
	case err != nil:
		l.hold(ctx, m, soon, fmt.Sprintf("podsync does not say which pods there are: %v", err))
		return pods, false
	case l.gathers(pods):
		l.hold(ctx, m, soon, "podsync was just started and may not have heard of all pods")
		return pods, false
	}
	return pods, true
}

// gathers says whether podsync is to be given time to hear of its pods.
func (l *Loop) gathers(pods Pods) bool {
	now := time.Now()
	switch {
	case !pods.Partial:
		l.partial = time.Time{}
	case l.partial.IsZero():
		l.partial = now
	}
	return pods.Partial && now.Sub(l.partial) < gathering
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// leftAlone says why a pod that may be evicted is not now.
func (l *Loop) leftAlone(pod *v1.Pod) string {
	if l.stopping[pod.UID] != nil {
		return "it is being stopped"
	}
	if time.Now().Before(l.skip[pod.UID]) {
		return "it has ended, or podsync does not stop it"
	}
	return ""
}

func why(signal string, c eviction.Candidate) string {
	used := eviction.Amount(signal, uint64(max(c.Usage, 0)))
	switch {
	case signal == threshold.PID:
		return fmt.Sprintf("of the pods of the lowest priority, %d, it has the most processes: %s", c.Priority, used)
	case c.Exceeds:
		return fmt.Sprintf("of the pods that use more than they asked for, and of these of those of the lowest priority, %d, it exceeds its request the most: it uses %s and asked for %s",
			c.Priority, used, eviction.Amount(signal, uint64(max(c.Request, 0))))
	}
	return fmt.Sprintf("no pod uses more than it asked for, and of those of the lowest priority, %d, it comes nearest: it uses %s and asked for %s",
		c.Priority, used, eviction.Amount(signal, uint64(max(c.Request, 0))))
}
