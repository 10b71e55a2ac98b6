package evict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/threshold"
)

const (
	isWatched = "A pod is over a limit of local storage"
	wasOne    = "and is no more"
)

// wantSaid compares how many lines there were about a pod that began and ended to be watched.
func (w *world) wantSaid(when, pod string, begun, over int) {
	w.t.Helper()
	count := func(text string) (n int) {
		for _, line := range w.said(text) {
			if strings.Contains(line, `"name"="`+pod+`"`) {
				n++
			}
		}
		return n
	}
	if b, o := count(isWatched), count(wasOne); b != begun || o != over {
		w.t.Errorf("%s: %d lines that %s is watched and %d that it is no more, want %d and %d: %q", when, b, pod, o, begun, over, w.lines)
	}
}

func TestAPodThatIsWatchedForMinutesIsToldOfOnceAndOnceWhenItIsOver(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("unsure", 1, 20*mi, capped)
		w.set(func() { w.long, w.unlinked["unsure"] = map[string]bool{"unsure": true}, 90*mi })
		w.pass(watchedAfter - interval)
		w.wantSaid("before two minutes", "unsure", 0, 0)
		w.pass(30 * time.Minute)
		w.wantSaid("while it is watched", "unsure", 1, 0)
		line := strings.Join(w.said(isWatched), "")
		for _, want := range []string{`"signal"="emptydirfs.limit"`, `"used"="110Mi"`, `"limit"="100Mi"`, `"since"="`, `"slow"=true`, "walked in their turn"} {
			if !strings.Contains(line, want) {
				t.Errorf("%s is not in %s", want, line)
			}
		}
		if d := w.last(); d.Outcome != Held || d.Chosen.Name != "unsure" || d.Shortage.Available != "110Mi" || !strings.HasPrefix(d.Why, "default/unsure runs on") {
			t.Errorf("%+v", d)
		}
		w.set(func() { w.long, w.unlinked["unsure"] = nil, 0 })
		w.pass(10 * time.Minute)
		if d := w.last(); d.Outcome != Held || !strings.HasPrefix(d.Why, "default/unsure was not stopped") {
			t.Errorf("%+v", d)
		}
		w.wantSaid("it holds nothing any more", "unsure", 1, 1)
		w.wantStops("no walk said so")
	})
}

// Others have files of their own counted for it: it begins anew to be one with each walk.
func TestASuspectThatBeginsAnewIsToldOfAllTheSame(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("victim", 1, 10*mi, capped)
		w.set(func() {
			w.walked, w.counts = map[string]uint64{"victim": 150 * mi}, map[types.UID]bool{"victim": true}
		})
		w.pass(watchedAfter / 2)
		w.wantSaid("before two minutes", "victim", 0, 0)
		w.pass(10 * time.Minute)
		w.wantSaid("it was one all the time", "victim", 1, 0)
		if line := w.said(isWatched)[0]; !strings.Contains(line, `"slow"=false`) {
			t.Error(line)
		}
		w.set(func() { w.walked = nil })
		w.pass(10 * time.Minute)
		w.wantSaid("nothing is counted for it any more", "victim", 1, 1)
	})
}

func TestAPodThatIsStoppedWhileItIsWatchedIsToldOfByTheDecisionAlone(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("greedy", 1, 150*mi, capped)
		w.set(func() {
			w.counts, w.long, w.slowly = map[types.UID]bool{"greedy": true}, map[string]bool{"greedy": true}, time.Hour
		})
		w.pass(2 * longestDoubt)
		w.wantStops("it has more in one directory", "greedy")
		w.wantSaid("it was stopped", "greedy", 1, 0)
	})
}

func TestAWatchedPodThatEndsByItselfIsToldOf(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("unsure", 1, 20*mi, capped)
		w.set(func() { w.long, w.unlinked["unsure"] = map[string]bool{"unsure": true}, 90*mi })
		w.pass(5 * time.Minute)
		w.end("unsure")
		w.pass(5 * time.Minute)
		w.wantSaid("it is gone", "unsure", 1, 1)
		if line := strings.Join(w.said(wasOne), ""); !strings.Contains(line, "it has ended") {
			t.Error(line)
		}
	})
}

func TestThatALayerIsWaitedForIsTold(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.loop.deps.Stats = &seldomWeighed{world: w, weighed: time.Now().Add(24 * time.Hour), layer: 80 * mi, more: 80 * mi}
		w.pod("mover", 1, 0, withLayer)
		w.pass(time.Hour)
		w.wantSaid("its layer is not weighed", "mover", 1, 0)
		if line := strings.Join(w.said(isWatched), ""); !strings.Contains(line, "which has not weighed its layers since") {
			t.Error(line)
		}
	})
}

func TestAPodsyncThatIsJustStartedIsNoEndOfWatching(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("unsure", 1, 20*mi, capped)
		w.set(func() { w.long, w.unlinked["unsure"] = map[string]bool{"unsure": true}, 90*mi })
		w.pass(5 * time.Minute)
		w.set(func() { w.forgetful, w.partial = true, true })
		w.pass(20 * time.Second)
		w.set(func() { w.forgetful, w.partial = false, false })
		w.pass(5 * time.Minute)
		w.wantSaid("it was one all the time", "unsure", 1, 0)
	})
}

func TestWhoIsASuspectNowAndThenIsToldOfAtMostTwiceInWhatIsOneEpisode(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("web", 1, 10*mi, capped)
		w.set(func() { w.counts = map[types.UID]bool{"web": true} })
		for i := range 60 {
			w.set(func() { w.walked = map[string]uint64{"web": uint64(150*mi) * uint64(i%2)} })
			w.pass(2 * interval)
		}
		w.wantSaid("every other time", "web", 1, 0)
		w.set(func() { w.walked = nil })
		w.pass(5 * time.Minute)
		w.wantSaid("it never is now", "web", 1, 1)
	})
}

func TestOfManyWatchedPodsTheRestIsToldOfByNumber(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		for i := range 60 {
			w.pod(fmt.Sprint("unsure-", i), 1, 0, capped)
		}
		w.set(func() {
			w.long = map[string]bool{}
			for _, p := range w.pods {
				w.long[p.Name], w.disk[p.Name], w.unlinked[p.Name] = true, 20*mi, 90*mi
			}
		})
		w.pass(10 * time.Minute)
		named, more := w.said(isWatched), w.said("More pods are over limits")
		if len(named) != watchedNamed || len(more) != 1 || !strings.Contains(more[0], `"pods"=50`) {
			t.Errorf("%d by name, and %q", len(named), more)
		}
		w.set(func() { clear(w.unlinked); w.long = nil })
		w.pass(15 * time.Minute)
		if over, others := w.said(wasOne), w.said("The other pods"); len(over) != watchedNamed || len(others) != 1 {
			t.Errorf("%d lines that they are no more, and %q", len(over), others)
		}
	})
}
