package evict

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/threshold"
)

// hung is a node short of memory whose podsync does not answer about its first pod.
func hung(t *testing.T, test func(w *world)) {
	t.Helper()
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("first", 500*mi, 0)
		w.pod("second", 430*mi, 0)
		w.set(func() {
			w.hangs = map[string]time.Duration{"first": time.Hour}
			w.takes["first"], w.takes["second"] = time.Hour, time.Hour
		})
		w.signals()
		w.wantStops("at first", "first")
		test(w)
	})
}

func TestMemoryThatRunsOutDoesNotWaitForAnAnswerAboutAPod(t *testing.T) {
	hung(t, func(w *world) {
		w.set(func() { w.otherMemory = 10 * mi })
		w.pass(2 * time.Second)
		w.wantStops("while the first may use its time", "first")
		w.pass(time.Second)
		w.wantStops("when it had its time and less is left", "first", "second")
	})
	hung(t, func(w *world) {
		w.pass(4 * time.Second)
		w.wantStops("while as much is left", "first")
	})
}

func TestAPodsyncThatHangsAsAWholeIsNotAskedForAnotherPod(t *testing.T) {
	hung(t, func(w *world) {
		w.set(func() { w.otherMemory, w.slow = 10*mi, time.Second })
		w.pass(4500 * time.Millisecond)
		w.wantStops("it is slow to say which pods there are", "first")
		if d := w.last(); d.Outcome != Held || !strings.Contains(d.Why, "has not said yet whether it stops pod default/first") {
			t.Errorf("%+v", d)
		}
	})
}

func TestAPodsyncThatComesBackEndsTheFirstOfThoseThatWereChosen(t *testing.T) {
	hung(t, func(w *world) {
		w.set(func() { w.otherMemory = 10 * mi; w.hangs["second"] = time.Hour })
		w.pass(3 * time.Second)
		w.wantStops("neither is answered", "first", "second")
		w.pass(2500 * time.Millisecond)
		w.set(func() { w.hangs = nil; w.takes["first"] = time.Second; w.stops = nil })
		w.pass(20 * time.Second)
		w.wantStops("when it answers", "first")
	})
}

func TestNobodyIsAskedForAgainWhenNothingIsShortAnyMore(t *testing.T) {
	hung(t, func(w *world) {
		w.set(func() {
			w.memory["second"] = 10 * mi
			w.hangs = nil
			w.stopErr = fmt.Errorf("%w: no answer", rpcerr.ErrTimeout)
		})
		w.pass(30 * time.Second)
		w.wantStops("after the answer failed to come", "first")
	})
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 950*mi, 0)
		w.takes["hog"] = time.Hour
		w.stopErr = fmt.Errorf("%w: it is stopped, and that is not kept", rpcerr.ErrInternal)
		w.signals()
		w.set(func() { w.memory["hog"] = 10 * mi })
		w.pass(2500 * time.Millisecond)
		w.wantStops("but what goes on is to be kept", "hog", "hog", "hog")
	})
}

// A disk that is busy takes the record of a stop too late, and the pod has ended when it is
// asked for again.
func TestAnEvictionThatPodsyncCouldNotKeepIsOneWhenThePodHasEnded(t *testing.T) {
	for _, askedAgain := range []bool{false, true} {
		in(t, hardMemory(), Config{}, func(w *world) {
			w.pod("hog", 950*mi, 0)
			w.takes["hog"] = time.Hour
			w.stopErr = fmt.Errorf("%w: it is stopped, and that is not kept", rpcerr.ErrInternal)
			w.signals()
			if askedAgain {
				w.pass(soon + 100*time.Millisecond)
			} else {
				w.pass(100 * time.Millisecond)
			}
			if d := w.last(); d.Outcome != Refused || w.metric("kubelet_evictions", "memory.available") != 0 {
				t.Errorf("while it ends: %+v", d)
			}
			w.set(func() { w.stopErr = fmt.Errorf("%w: no such pod", rpcerr.ErrNotFound) })
			w.end("hog")
			w.pass(10 * time.Second)
			if d := w.last(); d.Outcome != Evicted || d.Chosen.Name != "hog" || strings.Contains(d.Why, "kept") || w.metric("kubelet_evictions", "memory.available") != 1 {
				t.Errorf("asked again %v: %+v, counted %v times", askedAgain, d, w.metric("kubelet_evictions", "memory.available"))
			}
		})
	}
}

func ending(kind string, since time.Duration) map[types.UID]Ending {
	return map[types.UID]Ending{"hog": {Reason: "Evicted", Message: "The node was low on resource: " + kind + ". Threshold", Since: time.Now().Add(-since), Grace: time.Second}}
}

func TestAStopThatARunBeforeThisHasBegunIsWaitedForThoughAnotherUsesMore(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 300*mi, 0)
		w.pod("second", 630*mi, 0)
		w.set(func() { w.endings = ending("memory", 3*time.Second) })
		w.pass(5 * time.Second)
		w.wantStops("while it ends")
		if d := w.loop.View().Decisions; !slices.ContainsFunc(d, func(d Decision) bool {
			return d.Outcome == Held && d.Chosen.Name == "hog" && strings.Contains(d.Why, "pod default/hog is being stopped since before nodestatus was started")
		}) {
			t.Errorf("%+v", d)
		}
		w.end("hog")
		w.set(func() { w.endings = ending("memory", time.Hour); w.otherMemory = 300 * mi })
		w.pass(3 * time.Second)
		w.wantStops("when it has ended", "second")
	})
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 300*mi, 0)
		w.pod("second", 630*mi, 0)
		w.set(func() { w.endings = ending("memory", time.Minute) })
		w.signals()
		w.wantStops("one that had all its time is not waited for", "second")
	})
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 300*mi, 0)
		w.pod("second", 630*mi, 0)
		w.set(func() {
			w.endings = ending("memory", 0)
			e := w.endings["hog"]
			e.Reason = "Preempting"
			w.endings["hog"] = e
		})
		w.signals()
		w.wantStops("nor one that makes room for another pod", "second")
	})
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 300*mi, 0)
		w.pod("second", 630*mi, 0)
		w.set(func() { w.endings = ending("ephemeral-storage", 0) })
		w.signals()
		w.wantStops("nor one that frees a disk", "second")
	})
}

// Who has made it has forced its deletion, say, and it still ends.
// Less is left than when it was found, and more than when it was chosen: what it has is
// coming free.
func TestAStopThatARunBeforeThisHasBegunIsMeasuredByWhatWasLeftThen(t *testing.T) {
	for left, want := range map[string][]string{"30Mi": nil, "60Mi": {"second"}} {
		in(t, hardMemory(), Config{}, func(w *world) {
			w.pod("hog", 300*mi, 0)
			w.pod("second", 630*mi, 0)
			w.set(func() {
				w.endings, w.takes["hog"] = ending("memory", 0), time.Hour
				e := w.endings["hog"]
				e.Message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: " + left + ". Container c was using 300Mi, request is 0. "
				w.endings["hog"] = e
			})
			w.pass(2 * time.Second)
			w.set(func() { w.otherMemory = 20 * mi })
			w.pass(10 * time.Second)
			w.wantStops("when "+left+" was left", want...)
		})
	}
}

func TestAStopThatARunBeforeThisHasBegunIsWaitedForThoughThePodsSourceHasDroppedIt(t *testing.T) {
	for name, want := range map[string][]string{"hog": nil, "": {"second"}} {
		in(t, hardMemory(), Config{}, func(w *world) {
			w.pod("hog", 300*mi, 0)
			w.pod("second", 630*mi, 0)
			w.set(func() {
				w.dropped = map[string]bool{"hog": true}
				w.endings = ending("memory", 3*time.Second)
				e := w.endings["hog"]
				e.Namespace, e.Name = "default", name
				w.endings["hog"] = e
			})
			w.pass(5 * time.Second)
			w.wantStops(fmt.Sprintf("while it ends, and its name is %q", name), want...)
			if d := w.loop.View().Decisions; name != "" && !slices.ContainsFunc(d, func(d Decision) bool {
				return d.Outcome == Held && d.Chosen == Pod{"default", "hog", "hog"}
			}) {
				t.Errorf("%+v", d)
			}
			w.end("hog")
			w.set(func() { w.endings, w.otherMemory = nil, 300*mi })
			w.pass(3 * time.Second)
			w.wantStops("when it has ended", "second")
		})
	}
}

func TestAPodWhoseVolumesAreGoneIsNotWaitedForAnyLonger(t *testing.T) {
	for left, want := range map[bool][]string{true: {"hog"}, false: {"hog", "other"}} {
		in(t, hardDisk(), Config{}, func(w *world) {
			w.pod("hog", 1, 500*mi)
			w.pod("other", 1, 450*mi)
			w.takes["hog"] = time.Second
			w.set(func() { w.endings = map[types.UID]Ending{} })
			w.pass(freeing + 500*time.Millisecond)
			w.set(func() {
				w.otherDisk = 500 * mi // What it had is used by somebody else at once.
				if left {
					w.endings = ending("ephemeral-storage", 0)
				}
			})
			w.pass(7 * time.Second)
			w.wantStops(fmt.Sprintf("volumes are left: %v", left), want...)
		})
	}
}

func TestAPodWhoseVolumesDoNotGoIsWaitedForOnce(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("hog", 1, 500*mi)
		w.pod("other", 1, 450*mi)
		w.takes["hog"] = time.Hour
		w.pass(freeing + 500*time.Millisecond)
		w.wantStops("at first", "hog")
		w.set(func() {
			failed := w.pods[0].DeepCopy()
			failed.Status.Phase = v1.PodFailed
			w.pods[0] = failed
			w.endings = ending("ephemeral-storage", 0)
			e := w.endings["hog"]
			e.Ended = true
			w.endings["hog"] = e
		})
		w.pass(emptying + freeing + 2*time.Second)
		w.wantStops("when its volumes had their time", "hog", "other")
	})
}

// The runtime may take long to take down its network, and nothing of it uses memory any more.
func TestAPodThatUsesNothingAnyMoreIsNotWaitedForAgain(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 500*mi, 0)
		w.pod("second", 430*mi, 0)
		w.takes["hog"] = time.Hour
		w.signals()
		w.wantStops("at first", "hog")
		w.set(func() {
			delete(w.memory, "hog")
			w.otherMemory = 500 * mi // As much is short.
			w.endings = ending("memory", 0)
		})
		w.pass(5 * time.Second)
		w.wantStops("when stats sees nothing of it", "hog", "second")
	})
}

// Whoever is short then is chosen anew: the first may use little by now.
func TestWhoPodsyncDidNotStopDoesNotGoForALaterShortage(t *testing.T) {
	soft := threshold.Settings{Soft: map[string]string{"memory.available": "100Mi"}, SoftGrace: map[string]string{"memory.available": "1s"}}
	in(t, soft, Config{LongestGrace: 10 * time.Minute}, func(w *world) {
		w.pod("first", 950*mi, 0)
		w.stopErr = fmt.Errorf("%w: it starts", rpcerr.ErrUnavailable)
		w.pass(1800 * time.Millisecond)
		w.wantStops("at first", "first")
		w.set(func() { w.memory["first"] = 10 * mi })
		w.pass(30 * time.Second)
		w.set(func() { w.stopErr, w.stops = nil, nil })
		w.pod("second", 950*mi, 0)
		w.pass(3 * time.Second)
		w.wantStops("half a minute later", "second")
	})
}

func TestWhatAPodLeavesThatWentForMemoryBeforeARestartGoesBeforeAnotherHasToForADisk(t *testing.T) {
	in(t, hardDisk(), Config{}, func(w *world) {
		w.pod("other", 1, 450*mi)
		w.otherDisk, w.barren = 500*mi, true // The volumes of the one that has ended.
		w.set(func() {
			e := ending("memory", 0)["hog"]
			e.Namespace, e.Name, e.Ended = "default", "hog", true
			w.endings = map[types.UID]Ending{"hog": e}
		})
		w.pass(6 * time.Second)
		w.wantStops("while they go")
		w.set(func() { w.endings, w.otherDisk = map[types.UID]Ending{}, 0 })
		w.pass(20 * time.Second)
		w.wantStops("when they are gone")
	})
}

// Nothing comes of asking again, and others would be waited with once more.
func TestAPodThatPodsyncCannotEndInItsTimeIsNotChosenAgain(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 500*mi, 0)
		w.set(func() { w.otherMemory, w.takes["hog"], w.endings = 450*mi, time.Hour, ending("memory", 0) })
		w.pass(5 * time.Minute)
		w.wantStops("while it is ended since before")
		w.pod("other", 1*mi, 0)
		w.pass(20 * time.Second)
		w.wantStops("when there is another", "other")
	})
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 500*mi, 0)
		w.set(func() { w.otherMemory, w.takes["hog"] = 450*mi, time.Hour })
		w.pass(2 * time.Second)
		w.set(func() { w.endings = ending("memory", 0) })
		w.pass(5 * time.Minute)
		w.wantStops("in five minutes", "hog")
	})
}

// Its answer may be heard late, as when the loop waits for figures meanwhile.
func TestAPodThatHasEndedBeforePodsyncAnswersIsTold(t *testing.T) {
	in(t, hardMemory(), Config{}, func(w *world) {
		w.pod("hog", 950*mi, 0)
		w.set(func() { w.hangs = map[string]time.Duration{"hog": 4 * time.Second} })
		w.pass(time.Second)
		w.end("hog")
		w.pass(10 * time.Second)
		w.wantStops("in all", "hog")
		if d := w.last(); d.Outcome != Evicted || d.Chosen.Name != "hog" || w.metric("kubelet_evictions", "memory.available") != 1 {
			t.Errorf("%+v", d)
		}
	})
}
