package evict

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
)

const (
	// watchedAfter is how long a pod is a suspect before that is told: most are for seconds.
	watchedAfter = 2 * time.Minute
	// watchedPause is how long it is none before that is: who is one in every other look would be
	// told of without end.
	watchedPause = time.Minute
	// watchedNamed is how many of them one look tells of by name, there may be hundreds.
	watchedNamed = 10
)

// watched is a pod that has been a suspect, with short pauses. It is kept apart from the suspect,
// which begins anew with walks that say less.
type watched struct {
	pod                 Pod
	signal, used, limit string
	// since is when it was one first, last when it was last.
	since, last time.Time
	// told: that it is one; named: by its name, others only by how many they are.
	told, named bool
}

// watch keeps that a pod is a suspect, and by what.
func (l *Loop) watch(b eviction.Breach) {
	if l.watched == nil {
		l.watched = map[types.UID]*watched{}
	}
	w := l.watched[b.Pod.UID]
	if w == nil {
		w = &watched{pod: ref(b.Pod), since: time.Now(), last: time.Now()}
		l.watched[b.Pod.UID] = w
	}
	w.signal, w.used, w.limit = b.Signal, b.Used, b.Limit
}

// tellWatched tells of pods that run on though figures have them over a limit, and of those that
// did: each once. pods may be suspects; whom a look has found, or who is beside it, a decision is
// about.
func (l *Loop) tellWatched(ctx context.Context, pods []*v1.Pod, found []eviction.Breach, beside map[types.UID]bool) {
	now, here, decided := time.Now(), map[types.UID]bool{}, map[types.UID]bool{}
	for _, pod := range pods {
		here[pod.UID] = true
	}
	for _, b := range found {
		decided[b.Pod.UID] = true
	}
	var begun, over []*watched
	for uid, w := range l.watched {
		_, is := l.suspects[uid]
		switch is = is && here[uid]; {
		case decided[uid] || beside[uid]:
			delete(l.watched, uid)
		case is:
			if w.last = now; !w.told && now.Sub(w.since) >= watchedAfter {
				begun = append(begun, w)
			}
		case !here[uid] || now.Sub(w.last) >= watchedPause:
			if delete(l.watched, uid); w.named {
				over = append(over, w)
			}
		}
	}
	l.tellOver(ctx, over, here)
	l.tellBegun(ctx, begun)
}

// tellBegun tells of suspects that have been ones for long.
func (l *Loop) tellBegun(ctx context.Context, all []*watched) {
	log := klog.FromContext(ctx)
	slices.SortFunc(all, byName)
	for i, w := range all {
		if w.told, w.named = true, i < watchedNamed; !w.named {
			continue
		}
		s := l.suspects[w.pod.UID]
		log.Info("A pod is over a limit of local storage by figures that are not sure, and runs on until they are; whoever wants it to go before that deletes it, or has it keep fewer files, which are counted sooner",
			"pod", klog.KRef(w.pod.Namespace, w.pod.Name), "signal", w.signal, "used", w.used, "limit", w.limit, "since", w.since.Format(time.RFC3339), "slow", s.slow || s.late, "waitsFor", s.waits())
		l.keepWatched(w, "runs on, as its figures are not sure; what is waited for: "+s.waits())
	}
	if more := len(all) - watchedNamed; more > 0 {
		l.moreWatched = true
		log.Info("More pods are over limits of local storage by figures that are not sure, and run on until they are", "pods", more)
	}
}

// tellOver tells of those that were told of by name and are suspects no more, and of the last of
// those that were by number.
func (l *Loop) tellOver(ctx context.Context, all []*watched, here map[types.UID]bool) {
	log := klog.FromContext(ctx)
	slices.SortFunc(all, byName)
	for _, w := range all {
		why := "its figures have it over none any more"
		if !here[w.pod.UID] {
			why = "it has ended, or is being ended"
		}
		log.Info("A pod was over a limit of local storage by figures that were not sure, and is no more", "pod", klog.KRef(w.pod.Namespace, w.pod.Name), "signal", w.signal, "limit", w.limit, "since", w.since.Format(time.RFC3339), "why", why)
		l.keepWatched(w, "was not stopped for that: "+why)
	}
	if !l.moreWatched {
		return
	}
	for _, w := range l.watched {
		if w.told && !w.named {
			return
		}
	}
	l.moreWatched = false
	log.Info("The other pods that were over limits of local storage by figures that were not sure, and not named, are no more, or were stopped")
}

// keepWatched has what is told of one by name among the decisions, for whoever asks for these.
func (l *Loop) keepWatched(w *watched, why string) {
	l.keep(&Decision{
		Shortage: Shortage{Signal: w.signal, Threshold: w.limit, Available: w.used, Hard: true}, Outcome: Held, Chosen: w.pod,
		Why: w.pod.Namespace + "/" + w.pod.Name + " " + why,
	})
}

func byName(a, b *watched) int {
	return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
}

// waits is what is waited for until it is sure that a suspect is over its limit.
func (s suspect) waits() string {
	switch {
	case s.late:
		return "its directories, which take too long to be measured at once; they are walked in their turn"
	case s.unweighed:
		return "the runtime, which has not weighed its layers since"
	case s.once:
		return "its directories to be walked once more, as they take long"
	}
	return "walks of its directories, side by side, that say so; they say less up to now"
}
