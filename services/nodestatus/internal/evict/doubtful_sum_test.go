package evict

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/threshold"
)

// limitedInAll may have 100Mi in all that is its own, of which a volume and logs have half each.
func limitedInAll(p *v1.Pod) {
	p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("100Mi")}
}

// A directory's figure may be of minutes before another's: what was moved is in both.
func TestWhoIsOverTheSumOfItsDirectoriesHasThemWalkedSideBySide(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("mover", 1, 80*mi, limitedInAll)
		w.pod("greedy", 1, 160*mi, limitedInAll)
		w.set(func() { w.sums, w.walked = true, map[string]uint64{"mover": 160 * mi} })
		w.pass(5 * time.Second)
		w.wantStops("when it is seen once")
		w.pass(10 * time.Minute)
		w.wantStops("the mover has 80Mi of 100Mi", "greedy")
	})
}

// What takes long to be walked is in no sum for minutes: who is over only now and then would be
// forgotten before it is walked anew.
func TestASuspectWhoseDirectoriesTakeLongStaysOneUntilTheyAreWalked(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("greedy", 1, 160*mi, limitedInAll)
		w.set(func() {
			w.sums, w.long, w.slowly = true, map[string]bool{"greedy": true}, 3*time.Minute
			w.counts = map[types.UID]bool{"greedy": true}
		})
		w.pass(30 * time.Second)
		w.set(func() { w.walked = map[string]uint64{"greedy": 80 * mi} }) // as far as is known
		w.pass(9 * time.Minute)
		w.wantStops("its directories were walked", "greedy")
	})
}

func TestASuspectWhoseDirectoriesTakeLongHoldsUpNoOther(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("unsure", 1, 20*mi, capped)
		w.set(func() { w.long, w.unlinked["unsure"] = map[string]bool{"unsure": true}, 90*mi })
		w.pass(2 * time.Minute)
		w.pod("greedy", 1, 160*mi, limitedInAll)
		w.set(func() { w.sums = true })
		w.pass(3 * interval)
		w.wantStops("after two looks", "greedy")
	})
}

// What is moved again and again may be in both, if one is walked minutes before the other.
func TestWhatSlowWalksSayOfASumTheySayTwice(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("mover", 1, 160*mi, limitedInAll)
		w.set(func() {
			w.sums, w.long, w.slowly, w.counts = true, map[string]bool{"mover": true}, 30*time.Second, map[types.UID]bool{"mover": true}
		})
		w.pass(80 * time.Second) // a suspect, late, and walked once
		w.wantStops("once is not enough")
		w.set(func() { w.disk["mover"] = 80 * mi })
		w.pass(10 * time.Minute)
		w.wantStops("the next walk has it once")
	})
}

func TestWhoHasMoreThanItsLimitInOneDirectoryGoesAtOnce(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("greedy", 1, 240*mi, limitedInAll)
		w.set(func() { w.sums = true })
		w.pass(interval + time.Second)
		w.wantStops("120Mi are in the volume", "greedy")
	})
}

// Its figures are of any age while others' directories are walked: what it has moved is in both.
func TestWhoseSumIsNeverWalkedIsNotStoppedByIt(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("mover", 1, 160*mi, limitedInAll)
		w.set(func() { w.sums, w.long = true, map[string]bool{"mover": true} })
		w.pass(2 * longestDoubt)
		w.wantStops("no walk says so")
	})
}

// Whose directories are measured anew has others' wait.
func TestWhoWasOverASumOnceIsAskedForOnceAMinuteAndNoLongerThanThat(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("mover", 1, 160*mi, limitedInAll)
		w.set(func() {
			w.sums, w.long, w.slowly, w.counts = true, map[string]bool{"mover": true}, 30*time.Second, map[types.UID]bool{"mover": true}
		})
		w.pass(80 * time.Second)
		w.set(func() { w.disk["mover"] = 10 * mi })
		w.pass(15 * time.Minute)
		w.wantStops("it is over nothing")
		if n := len(w.sinces); n > 8 {
			t.Errorf("it was measured anew %d times", n)
		}
	})
}

func TestASuspectThatASecondLookDoesNotFindIsWalkedOnceAllTheSame(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("greedy", 1, 160*mi, limitedInAll)
		w.set(func() { w.sums = true })
		w.pass(interval / 2)
		w.set(func() { w.walked = map[string]uint64{"greedy": 80 * mi} })
		w.pass(2 * interval)
		w.wantStops("it has 160Mi of 100Mi", "greedy")
	})
}

func TestANewerSuspectMakesNoOlderOneLate(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("greedy", 1, 160*mi, limitedInAll)
		w.set(func() { w.sums, w.long, w.slowly = true, map[string]bool{"greedy": true}, 90*time.Second })
		for i := range 5 {
			name := fmt.Sprint("new-", i)
			w.pass(30 * time.Second)
			w.pod(name, 1, 160*mi, limitedInAll)
			w.set(func() { w.long[name] = true })
			w.pass(30 * time.Second)
			w.set(func() { w.disk[name] = 10 * mi })
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.stops) != 1 || w.stops[0].Pod.Name != "greedy" {
			t.Errorf("stopped %v", w.stops)
		}
	})
}
