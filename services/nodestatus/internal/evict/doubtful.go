package evict

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
)

// share is the part of the time in which open files are looked at for limits: a container
// decides how many there are.
const share = 20

// seldom is how long a suspect is left alone at most after its directories were to be measured anew,
// which others' wait for; those that take too long go on being measured meanwhile. It is at least
// often, and as long in between as the share has it.
const (
	often  = 10 * time.Second
	seldom = time.Minute
)

// enough is how many times in a row walks side by side alone have to say that a suspect is over its
// limit: by the least of each directory one that fills another each time never is.
const enough = 5

// longestDoubt is how long a suspect's directories are waited for by whose figures it is one. Then
// it goes by what is known of one of them: a sum of figures of many times says nothing.
const longestDoubt = 4 * time.Minute

// suspect is a pod that is over a limit by what it holds open in files that were removed, or by
// figures that are not sure.
type suspect struct {
	// since is when it was seen first, files what it has held at least since then.
	since time.Time
	files []eviction.Unlinked
	// figures have of each directory the least that it had in an answer since then.
	figures *statsapi.PodStats
	// late: its directories took too long to be measured anew; they are not before next.
	late bool
	next time.Time
	// walks are how many in a row, side by side, have it over its limit, begun when the first of them
	// ended. layers have of each layer the least since then: not all are weighed for each.
	walks  int
	begun  time.Time
	layers *statsapi.PodStats
	// asked: they were to be. slow: one takes more than half a minute, so that their figures are of
	// many times; once: these said it, too.
	asked, slow, once bool
	// unweighed: the runtime has not weighed its layers since.
	unweighed bool
}

// doubtful are the breaches of pods whose figures do not say it alone: because of files that
// were removed and are open, which what was measured of directories before has, too; by what a
// filesystem counts in volumes, which others may have a part in; or by figures of many times, in
// which what was moved counts twice. So who is over its limit twice, ten seconds apart, goes by what it held
// all the time and by directories that were walked meanwhile.
func (l *Loop) doubtful(ctx context.Context, pods []*v1.Pod, figures eviction.Figures, unsure map[types.UID]bool, layout threshold.Layout) []eviction.Breach {
	began := time.Now()
	if began.Before(l.heldNext) || len(pods) == 0 {
		return nil
	}
	held := l.held(ctx)
	since := time.Now()
	l.heldNext = since.Add(share * since.Sub(began))
	before := l.suspects
	l.suspects = map[types.UID]suspect{}
	var again []*v1.Pod
	for _, b := range eviction.Breaches(pods, figures, held, layout) {
		uid, files := b.Pod.UID, eviction.Whole(held[b.Pod.UID])
		s, twice := before[uid]
		l.watch(b)
		if !twice {
			klog.FromContext(ctx).V(2).Info("A pod is over a limit by several figures; its directories are walked side by side before it is ended for that", "pod", klog.KObj(b.Pod), "signal", b.Signal, "used", b.Used, "limit", b.Limit)
			l.suspects[uid] = suspect{since: since, files: files, figures: figures[string(uid)]}
			continue
		}
		again = append(again, b.Pod)
		s.files = eviction.Least(s.files, files)
		l.suspects[uid] = s
	}
	for _, pod := range pods { // What takes long to be walked is in no sum for a while.
		s, was := before[pod.UID]
		if _, is := l.suspects[pod.UID]; was && !is && (!s.asked || s.late || s.once) {
			again = append(again, pod)
			s.files = eviction.Least(s.files, eviction.Whole(held[pod.UID]))
			l.suspects[pod.UID] = s
		}
	}
	again = slices.DeleteFunc(again, func(pod *v1.Pod) bool { return since.Before(l.suspects[pod.UID].next) })
	if len(again) == 0 {
		return nil
	}
	return l.confirmed(ctx, again, unsure, layout)
}

// confirmed are the breaches of suspects that are so by directories that were walked since they
// are.
func (l *Loop) confirmed(ctx context.Context, pods []*v1.Pod, unsure map[types.UID]bool, layout threshold.Layout) []eviction.Breach {
	w, err := l.walked(ctx, pods)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Pods that are over a limit by removed files, or by figures that are not sure, are not looked at, stats does not answer", "err", err)
		return nil
	}
	held, sure, alone := l.held(ctx), map[types.UID][]eviction.Unlinked{}, map[types.UID][]eviction.Unlinked{}
	var waited []*v1.Pod
	whole, figures, anew := w.figures, eviction.Figures{}, eviction.Figures{}
	// In aged figures layers are as old as they are, in the others they were weighed since.
	known, least, aged, older := eviction.Figures{}, eviction.Figures{}, eviction.Figures{}, map[types.UID]bool{}
	pods = w.asked
	for _, pod := range pods {
		uid, is := pod.UID, whole[string(pod.UID)]
		s := l.suspects[uid]
		s.asked, s.late, s.next = true, w.late[uid], time.Now().Add(w.rest)
		s.slow = s.slow || s.late && unsure[uid]
		files := eviction.Least(s.files, eviction.Whole(held[uid]))
		fresh, all := eviction.LayersSince(is, s.since, w.layers[uid])
		if s.unweighed, older[uid] = !all, !all; !all && time.Since(s.since) > seldom {
			s.next = time.Now().Add(seldom) // the runtime takes that long for it
		}
		if s.late { // A file may count in a directory, too, that was walked before it was removed.
			s.next = time.Now().Add(seldom)
			if time.Since(s.since) > longestDoubt {
				waited, known[string(uid)] = append(waited, pod), is
				least[string(uid)], _ = eviction.LayersSince(eviction.LeastFigures(pod, s.figures, is), s.since, w.layers[uid])
			}
			figures[string(uid)], aged[string(uid)] = eviction.LayersAlone(fresh), eviction.LayersAlone(is)
		} else {
			s.layers = eviction.LeastLayers(s.layers, is)
			alone[uid], anew[string(uid)] = eviction.Weighed(files, is, s.since), s.layers
			s.figures = eviction.LeastFigures(pod, s.figures, is)
			aged[string(uid)] = s.figures
			figures[string(uid)], _ = eviction.LayersSince(s.figures, s.since, w.layers[uid])
		}
		l.suspects[uid] = s
		sure[uid] = eviction.Weighed(files, figures[string(uid)], s.since)
	}
	out := eviction.Breaches(pods, figures, sure, layout)
	again, anyhow := eviction.Breaches(pods, anew, alone, layout), eviction.Breaches(pods, aged, sure, layout)
	for _, b := range anyhow { // However old: what one directory has is in no sum.
		if !b.Sum && !over(out, b.Pod) {
			out = append(out, b)
		}
	}
	for _, pod := range pods {
		s := l.suspects[pod.UID]
		if s.walks++; s.late || !w.once[pod.UID] || !over(again, pod) {
			s.walks, s.layers = 0, nil
		}
		if s.walks == 1 {
			s.begun = time.Now()
		}
		l.suspects[pod.UID] = s
		if !s.late && !over(out, pod) && !(older[pod.UID] && over(anyhow, pod)) { // It begins anew: what it has may grow.
			l.suspects[pod.UID] = suspect{
				since: time.Now(), files: eviction.Whole(held[pod.UID]), figures: whole[string(pod.UID)], asked: true, next: s.next,
				walks: s.walks, begun: s.begun, layers: s.layers,
			}
		}
	}
	out = slices.DeleteFunc(out, l.onceMore)
	for _, b := range again {
		s := l.suspects[b.Pod.UID]
		if _, all := eviction.LayersSince(s.layers, s.begun, w.layers[b.Pod.UID]); all && s.walks >= enough && !over(out, b.Pod) {
			out = append(out, b)
		}
	}
	sums := eviction.OfContainers(waited, least, layout) // However long volumes take.
	for _, b := range append(slices.DeleteFunc(eviction.Breaches(waited, known, nil, layout), func(b eviction.Breach) bool { return b.Sum }), sums...) {
		if !over(out, b.Pod) {
			out = append(out, b)
		}
	}
	return out
}

// onceMore says whether a breach has to be found another time, by walks that begin from now on: of
// directories that take long one was walked minutes before another, and what is moved again and
// again may be in both. What one of them has alone is no such matter.
func (l *Loop) onceMore(b eviction.Breach) bool {
	s := l.suspects[b.Pod.UID]
	if !b.Sum || !s.slow || s.late || s.once {
		return false
	}
	s.once, s.since = true, time.Now()
	l.suspects[b.Pod.UID] = s
	return true
}

// slowAtOnce is how many suspects are asked for one by one in a look, each of which may take
// seconds.
const slowAtOnce = 5

// walks are figures of suspects whose directories were walked.
type walks struct {
	figures eviction.Figures
	// asked are whose: not all that take long each time. late are those that took too long, and once
	// those whose directories were walked side by side, within this look.
	asked      []*v1.Pod
	late, once map[types.UID]bool
	// layers are those of whom stats says that not all layers were weighed.
	layers map[types.UID]bool
	// rest is how long they are left alone then.
	rest time.Duration
}

// walked has the directories of suspects walked anew, side by side. Those that took too long the last
// time are not walked again for each look, which would leave others' no time: what they came to
// since the pod is a suspect counts.
func (l *Loop) walked(ctx context.Context, pods []*v1.Pod) (walks, error) {
	w := walks{figures: eviction.Figures{}, late: map[types.UID]bool{}, once: map[types.UID]bool{}, layers: map[types.UID]bool{}, rest: often}
	var quick []types.UID
	var slow []*v1.Pod
	for _, pod := range pods {
		if l.suspects[pod.UID].late {
			slow = append(slow, pod)
			continue
		}
		quick, w.asked = append(quick, pod.UID), append(w.asked, pod)
	}
	if len(quick) > 0 {
		began := time.Now()
		summary, late, err := l.deps.Stats.Renewed(ctx, time.Time{}, quick...)
		if err != nil {
			return w, err
		}
		w.rest = min(max(often, share*time.Since(began)), seldom)
		figures := eviction.FiguresOf(summary)
		for _, uid := range quick {
			w.figures[string(uid)], w.late[uid], w.layers[uid], w.once[uid] = figures[string(uid)], late.Directories[uid], late.Layers[uid], true
		}
	}
	rand.Shuffle(len(slow), func(i, j int) { slow[i], slow[j] = slow[j], slow[i] })
	for _, pod := range slow[:min(len(slow), slowAtOnce)] {
		summary, late, err := l.deps.Stats.Renewed(ctx, l.suspects[pod.UID].since, pod.UID)
		if err != nil {
			return w, err
		}
		w.asked = append(w.asked, pod)
		w.figures[string(pod.UID)] = eviction.FiguresOf(summary)[string(pod.UID)]
		w.late[pod.UID], w.layers[pod.UID] = late.Directories[pod.UID], late.Layers[pod.UID]
	}
	return w, nil
}

// over says whether a pod is among breaches.
func over(all []eviction.Breach, pod *v1.Pod) bool {
	return slices.ContainsFunc(all, func(b eviction.Breach) bool { return b.Pod == pod })
}

// held are the files without a name that pods hold open, as far as stats had time to look.
func (l *Loop) held(ctx context.Context) map[types.UID][]eviction.Unlinked {
	files, _, _, err := l.deps.Stats.Unlinked(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Open files without a name do not count for limits of local storage, stats does not answer", "err", err)
	}
	return files
}
