package evict

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/threshold"
)

// capped may have 100Mi in a volume.
func capped(p *v1.Pod) {
	limit := resource.MustParse("100Mi")
	p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
}

func TestAShortageWaitsForAPodOverItsLimitOnlyIfThatMayBeEnough(t *testing.T) {
	for name, c := range map[string]struct {
		greedy, other uint64
		want          []string
	}{
		"it may be":   {150 * mi, 600 * mi, []string{"greedy"}},
		"it never is": {101 * mi, 800 * mi, []string{"greedy", "hog"}},
	} {
		// The figures say that it has twice as much, in logs and in a volume.
		in(t, threshold.Settings{Hard: map[string]string{"nodefs.available": "30%"}}, Config{LocalLimits: true}, func(w *world) {
			w.pod("hog", 1, 30*mi)
			w.pod("greedy", 1, 10*mi, capped)
			w.set(func() { w.takes["greedy"] = time.Hour })
			w.pass(5 * time.Second)
			w.set(func() { w.disk["greedy"] = c.greedy })
			w.pass(6 * time.Second)
			w.wantStops(name+": over its limit", "greedy")
			w.set(func() { w.otherDisk = c.other })
			w.pass(6 * time.Second)
			w.wantStops(name, c.want...)
		})
	}
}

func TestMemoryIsLookedAfterWhileLimitsAreLookedAt(t *testing.T) {
	in(t, hardDisk(), Config{LocalLimits: true}, func(w *world) {
		w.pod("hog", 10*mi, 0)
		w.pod("modest", 1, 10*mi, capped)
		w.set(func() { w.weighs = func() { time.Sleep(5 * time.Second) } })
		time.Sleep(interval + time.Millisecond)
		synctest.Wait()
		w.set(func() { w.memory["hog"] = 950 * mi })
		w.signals()
		w.wantStops("while the runtime weighs layers", "hog")
	})
}

func TestADiskThatIsShortWaitsForALookAtWhoHasMoreThanItMay(t *testing.T) {
	in(t, hardDisk(), Config{LocalLimits: true}, func(w *world) {
		w.pod("hog", 1, 700*mi)
		w.pod("greedy", 1, 150*mi, capped)
		w.set(func() { w.otherDisk = 100 * mi; w.weighs = func() { time.Sleep(4 * time.Second) } })
		w.pass(10 * time.Second)
		w.wantStops("in ten seconds", "greedy")
	})
}

func TestADiskThatIsShortIsRelievedThoughALookTakesLongerThanUntilTheNext(t *testing.T) {
	in(t, hardDisk(), Config{LocalLimits: true}, func(w *world) {
		w.pod("hog", 1, 940*mi)
		w.pod("modest", 1, 10*mi, capped)
		w.set(func() { w.weighs = func() { time.Sleep(interval + 250*time.Millisecond) } })
		w.pass(time.Minute)
		w.wantStops("in a minute", "hog")
	})
}

func TestALayerThatWasNeverWeighedIsNotWaitedForWithoutEnd(t *testing.T) {
	in(t, threshold.Settings{Hard: map[string]string{"nodefs.available": "30%"}}, Config{LocalLimits: true}, func(w *world) {
		w.set(func() { w.takes["greedy"], w.unweighed = time.Hour, map[string]bool{"greedy": true} })
		w.pod("greedy", 1, 10*mi, capped)
		w.pod("filler", 1, 100*mi)
		w.pass(5 * time.Second)
		w.set(func() { w.disk["greedy"] = 101 * mi })
		w.pass(6 * time.Second)
		w.wantStops("it is over its limit", "greedy")
		w.set(func() { w.disk["filler"], w.unweighed = 840*mi, nil })
		w.pass(8 * time.Second)
		w.wantStops("while it may be enough", "greedy")
		w.pass(10 * time.Second)
		w.wantStops("nobody knows", "greedy", "filler")
	})
}

func TestThatLimitsAreNotLookedAtIsToldOncePerOutage(t *testing.T) {
	const away, back = "Limits of local storage are not looked at", "Limits of local storage are looked at again"
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("modest", 1, 10*mi, capped)
		for outage := range 2 {
			w.pass(time.Minute)
			w.set(func() { w.statsErr = errors.New("away") })
			w.pass(10 * time.Minute)
			if n, again := len(w.said(away)), len(w.said(back)); n != outage+1 || again != outage {
				t.Errorf("outage %d: told %d times that it is one, %d that one was", outage, n, again)
			}
			w.set(func() { w.statsErr = nil })
			w.pass(time.Minute)
			if again := len(w.said(back)); again != outage+1 {
				t.Errorf("outage %d: told %d times that one was", outage, again)
			}
		}
	})
}

func TestALookThatStatsDoesNotAnswerIsNoOutage(t *testing.T) {
	in(t, threshold.Settings{}, Config{LocalLimits: true}, func(w *world) {
		w.pod("modest", 1, 10*mi, capped)
		w.set(func() { w.statsErr = errors.New("not up yet") })
		w.pass(interval - time.Second)
		w.set(func() { w.statsErr = nil })
		w.pass(time.Minute)
		if lines := w.said("Limits of local storage"); len(lines) != 0 {
			t.Errorf("%q", lines)
		}
	})
}
