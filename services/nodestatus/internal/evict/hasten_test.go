package evict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

func softAndHard() threshold.Settings {
	return threshold.Settings{
		Hard: map[string]string{"memory.available": "100Mi"},
		Soft: map[string]string{"memory.available": "300Mi"}, SoftGrace: map[string]string{"memory.available": "30s"},
	}
}

func patient(p *v1.Pod) {
	grace := int64(600)
	p.Spec.TerminationGracePeriodSeconds = &grace
}

// A pod that ignores the signal to end has it for as long as the kernel does not kill.
func TestMemoryThatRunsOutLeavesAPodNoneOfTheTimeThatASoftThresholdGaveIt(t *testing.T) {
	in(t, softAndHard(), Config{LongestGrace: 10 * time.Minute}, func(w *world) {
		w.pod("hog", 500*mi, 0, patient)
		w.pod("second", 300*mi, 0)
		w.set(func() { w.takes["hog"] = 10 * time.Minute })
		w.pass(40 * time.Second)
		w.wantStops("by the soft threshold", "hog")
		if grace := w.stops[0].Grace; grace != 10*time.Minute {
			t.Errorf("it has %s", grace)
		}
		w.set(func() { w.memory["hog"], w.takes["hog"], w.alreadyStopped["hog"] = 650*mi, time.Second, true })
		w.pass(1500 * time.Millisecond)
		w.wantStops("when the hard one is met", "hog", "hog")
		if len(w.stops) > 1 && w.stops[1].Grace != time.Second {
			t.Errorf("it has %s then", w.stops[1].Grace)
		}
		w.pass(time.Minute)
		w.wantStops("when it has ended", "hog", "hog")
		if w.metric("kubelet_evictions", "memory.available") != 1 {
			t.Error("one eviction is counted twice")
		}
		if d := w.last(); d.Outcome != Hastened || d.Chosen.Name != "hog" || !strings.Contains(d.Why, "pod default/hog is being stopped, and a hard threshold leaves it none of the time") {
			t.Errorf("%+v", d)
		}
	})
}

func TestAPodKeepsTheTimeThatASoftThresholdGaveItWhenASecondLookDoesNotFindTheHardOne(t *testing.T) {
	in(t, softAndHard(), Config{LongestGrace: 10 * time.Minute}, func(w *world) {
		w.pod("hog", 500*mi, 0, patient)
		w.pod("second", 300*mi, 0)
		w.set(func() { w.takes["hog"] = 10 * time.Minute })
		w.pass(40 * time.Second)
		w.set(func() {
			now := time.Now()
			w.frame = pressure.Frame{Heard: now, Signals: []pressure.Signal{{Name: "memory.available", Capacity: capacity, Time: now}}}
		})
		w.moved.Set()
		w.wantStops("by a figure that jumps to 0", "hog")
		if d := w.last(); d.Outcome != Held || !strings.Contains(d.Why, "a second look") {
			t.Errorf("%+v", d)
		}
	})
}

func TestAPodThatIsHastenedIsAskedForUntilPodsyncKnows(t *testing.T) {
	in(t, softAndHard(), Config{LongestGrace: 10 * time.Minute}, func(w *world) {
		w.pod("hog", 500*mi, 0, patient)
		w.pod("second", 300*mi, 0)
		w.set(func() { w.takes["hog"] = 10 * time.Minute })
		w.pass(40 * time.Second)
		w.set(func() { w.memory["hog"], w.stopErr = 650*mi, fmt.Errorf("%w: it starts", rpcerr.ErrUnavailable) })
		w.pass(1500 * time.Millisecond)
		w.set(func() { w.stopErr, w.takes["hog"], w.alreadyStopped["hog"] = nil, time.Second, true })
		w.pass(time.Minute)
		w.wantStops("in a minute", "hog", "hog", "hog", "hog")
	})
}

func TestAPodThatARunBeforeThisGaveTimeIsHastenedToo(t *testing.T) {
	in(t, softAndHard(), Config{LongestGrace: 10 * time.Minute}, func(w *world) {
		w.pod("hog", 500*mi, 0, patient)
		w.pod("second", 430*mi, 0)
		w.set(func() {
			w.takes["hog"] = time.Second
			w.endings = map[types.UID]Ending{"hog": {Reason: "Evicted", Message: "The node was low on resource: memory. Threshold", Since: time.Now(), Grace: 10 * time.Minute}}
		})
		w.pass(3 * time.Second)
		w.wantStops("it is found, and has no time", "hog")
		if len(w.stops) == 1 && w.stops[0].Grace != time.Second {
			t.Errorf("%+v", w.stops[0])
		}
		if w.metric("kubelet_evictions", "memory.available") != 0 {
			t.Error("an eviction of before is counted")
		}
	})
}

func TestAPodThatARunBeforeThisGaveTimeForADiskIsHastenedWhenOneIsFull(t *testing.T) {
	in(t, hardDisk(), Config{LongestGrace: 10 * time.Minute}, func(w *world) {
		w.pod("filler", 1, 950*mi, patient)
		w.pod("second", 1, 10*mi)
		w.set(func() {
			w.takes["filler"], w.alreadyStopped["filler"] = time.Second, true
			w.endings = map[types.UID]Ending{"filler": {
				Reason: "Evicted", Message: "The node was low on resource: ephemeral-storage. Threshold", Since: time.Now(), Grace: 10 * time.Minute,
			}}
		})
		w.pass(10 * time.Second)
		w.wantStops("it is found, and has no time", "filler")
		if len(w.stops) == 1 && w.stops[0].Grace != time.Second {
			t.Errorf("%+v", w.stops[0])
		}
	})
}
