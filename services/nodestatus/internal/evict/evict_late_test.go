package evict

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// withHog is a disk that a hog has filled; of its layer nothing is known yet, or a part.
func withHog(w *world, known uint64) {
	w.pod("small", 1, 5*mi)
	w.pod("hog", 1, 0)
	w.set(func() {
		w.otherDisk = 915 * mi // It is in the hog's layer.
		w.late, w.layers = map[string]bool{"hog": true}, map[string]uint64{"hog": known}
		w.unweighed = map[string]bool{"hog": known == 0}
	})
}

func TestALayerThatWasNotWeighedSinceADiskIsShortIsNotTakenForASmallOne(t *testing.T) {
	for name, known := range map[string]uint64{"nothing is known of it": 0, "a part of it was weighed": 1 * mi} {
		in(t, hardDisk(), Config{}, func(w *world) {
			withHog(w, known)
			w.pass(8 * time.Second)
			w.wantStops(name)
			if d := w.last(); d.Outcome != Held || !strings.Contains(d.Why, "pod default/hog has on the disk was not all measured") {
				t.Errorf("%s: %+v", name, d)
			}
			for _, since := range w.sinces {
				if !since.Equal(w.sinces[0]) {
					t.Fatalf("%s: what was measured is measured again: %v", name, w.sinces)
				}
			}
			w.set(func() { w.layers["hog"], w.late, w.unweighed = 915*mi, nil, nil })
			w.pass(2 * time.Second)
			w.wantStops(name+", then all", "hog")
		})
	}
}

func TestALayerThatCannotBeWeighedIsWaitedForSoLongAndThenTold(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		withHog(w, 4*mi)
		w.pass(layersAge - time.Second)
		w.wantStops("while it may be")
		w.pass(3 * time.Second)
		w.wantStops("by what is known of it", "small")
		if d := w.last(); !strings.Contains(d.Why, "pod default/hog has on the disk was not all measured") {
			t.Errorf("%+v", d)
		}
	})
}

func TestWhoHasMoreThanAnyOtherCanHaveIsNotKeptUpByALayerThatIsNotWeighed(t *testing.T) {
	important := func(p *v1.Pod) { n := int32(5); p.Spec.Priority = &n }
	critical := func(p *v1.Pod) { n := int32(2_000_000_000); p.Spec.Priority = &n }
	for name, c := range map[string]struct {
		hog    uint64
		change func(*v1.Pod)
	}{
		"most of what is used": {500 * mi, func(*v1.Pod) {}},
		"of less importance":   {50 * mi, important},
		"nobody may evict it":  {50 * mi, critical},
	} {
		in(t, hardDisk(), Config{}, func(w *world) {
			w.pod("hog", 1, c.hog)
			w.pod("other", 1, 1*mi, c.change)
			w.set(func() {
				w.otherDisk, w.late, w.unweighed = 920*mi-c.hog, map[string]bool{"other": true}, map[string]bool{"other": true}
			})
			w.pass(4 * time.Second)
			w.wantStops(name, "hog")
		})
	}
}

func TestFiguresOfTheDecisionBeforeAreTooOldForTheNext(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("first", 1, 400*mi)
		w.pod("second", 1, 300*mi)
		w.set(func() { w.otherDisk = 620 * mi })
		w.pass(time.Minute)
		w.wantStops("in a minute", "first", "second")
		first, last := w.sinces[0], w.sinces[len(w.sinces)-1]
		if len(w.sinces) < 2 || last.Sub(first) < time.Second {
			t.Errorf("%v", w.sinces)
		}
	})
}

func TestOnlyWhoHoldsMoreFilesOpenThanThereIsTimeForIsWaitedFor(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.pod("busy", 1, 1*mi)
		w.set(func() { w.otherDisk, w.someOf = 420*mi, map[string]bool{"busy": true} })
		w.pass(4 * time.Second)
		w.wantStops("it cannot have more than the hog", "hog")
	})
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 30*mi)
		w.pod("busy", 1, 1*mi)
		w.set(func() { w.otherDisk, w.someOf = 880*mi, map[string]bool{"busy": true} })
		w.pass(8 * time.Second)
		w.wantStops("it may have more")
		w.pass(8 * time.Second)
		w.wantStops("nobody knows", "hog")
	})
}

// Who writes fast has filled a disk before it is known that it runs.
func TestAPodThatHasJustBegunToRunAndHasNoFiguresIsWaitedFor(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("small", 1, 5*mi)
		w.pod("hog", 1, 0)
		w.set(func() {
			w.otherDisk, w.late = 915*mi, map[string]bool{"hog": true}
			delete(w.memory, "hog") // It has no figures.
		})
		w.pass(8 * time.Second)
		w.wantStops("while nothing is known of it")
		w.set(func() { w.memory["hog"], w.layers, w.late = 1, map[string]uint64{"hog": 915 * mi}, nil })
		w.pass(2 * time.Second)
		w.wantStops("when it is", "hog")
	})
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("small", 1, 5*mi)
		w.pod("pending", 1, 0)
		w.set(func() { w.otherDisk = 915 * mi; delete(w.memory, "pending") })
		w.pass(4 * time.Second)
		w.wantStops("one that does not run is not", "small")
	})
}

// Who filled the disk before has emptied it, and who has now filled it had nothing then.
func TestWhatWasMeasuredForAShortageThatIsOverChoosesNobodyForTheNext(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("small", 1, 5*mi)
		w.pod("hog", 1, 0)
		w.set(func() {
			w.layout.ImagesApart = true // so that there is nothing to reclaim, which would make them new
			w.otherDisk, w.long = 915*mi, map[string]bool{"hog": true}
		})
		w.pass(4 * time.Second)
		w.set(func() { w.otherDisk = 100 * mi })
		w.pass(4 * time.Second)
		before, again := len(w.sinces), time.Now()
		w.set(func() { w.otherDisk = 915 * mi })
		w.pass(3 * time.Second)
		w.wantStops("while it is not known who has the most")
		if before == 0 || len(w.sinces) == before {
			t.Fatalf("%v", w.sinces)
		}
		for _, since := range w.sinces[before:] {
			if since.Before(again) {
				t.Errorf("figures of %s before the disk was short again are good enough", again.Sub(since))
			}
		}
	})
}
