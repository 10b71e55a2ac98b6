package liveconf

import (
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/schedstat"
)

// with sets what others read.
func (f *fakeNode) with(set func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set()
}

// as is a process of which each second is like the times.
func as(each schedstat.Times) func(string) (schedstat.Times, bool) {
	began := time.Now()
	return func(string) (schedstat.Times, bool) {
		seconds := time.Since(began).Seconds()
		return schedstat.Times{Ran: time.Duration(seconds * float64(each.Ran)), Waited: time.Duration(seconds * float64(each.Waited))}, true
	}
}

// A machine with twenty times as much to do as it can had podsync take minutes to start.
func TestASlowStartOnAMachineWithoutAProcessorCondemnsNoChange(t *testing.T) {
	for name, each := range map[string]schedstat.Times{
		"it waits for a processor": {Waited: 900 * time.Millisecond}, "it has half of one": {Ran: 500 * time.Millisecond, Waited: 100 * time.Millisecond},
	} {
		onNode(t, func(t *testing.T, f *fakeNode) {
			f.write("maxPods: 105\n")
			f.after(time.Second)
			f.with(func() { f.missing, f.processors = "podsync", as(each) })
			if l, state, _ := f.after(8 * time.Minute); l.Config.MaxPods != 105 || state.Phase != Trying || !f.said("Nothing is said of the change", "podsync", "processor") {
				t.Errorf("%s, and it does not answer: %d pods, %+v", name, l.Config.MaxPods, state)
			}
			f.with(func() { f.missing = "" })
			if _, state, _ := f.after(40 * time.Second); state.Phase != Trying {
				t.Errorf("%s: good without the whole deadline: %+v", name, state)
			}
			if l, state, _ := f.after(time.Minute); l.Config.MaxPods != 105 || state.Phase != Good {
				t.Errorf("%s: when it has come up: %d pods, %+v", name, l.Config.MaxPods, state)
			}
		})
	}
}

func TestAServiceThatLacksSomethingOnAMachineWithoutAProcessorCondemnsNoChange(t *testing.T) {
	for name, tc := range map[string]struct {
		each schedstat.Times
		want Phase
	}{
		"it waits for a processor": {schedstat.Times{Waited: 900 * time.Millisecond}, Trying},
		"it has one":               {schedstat.Times{Ran: 900 * time.Millisecond}, WentBack},
	} {
		onNode(t, func(t *testing.T, f *fakeNode) {
			f.with(func() {
				f.processors = as(tc.each)
				f.lacks = func(service string, l *kubeletconfig.Loaded) map[string]string {
					if service == "podsync" && l.Config.MaxPods == 105 {
						return map[string]string{"runtime": "it does not answer"}
					}
					return nil
				}
			})
			f.write("maxPods: 105\n")
			if _, state, _ := f.after(5 * time.Minute); state.Phase != tc.want {
				t.Errorf("%s: %+v", name, state)
			}
		})
	}
}

func TestAServiceThatNeverComesUpIsNoExcuseForEver(t *testing.T) {
	for name, tc := range map[string]struct {
		each   schedstat.Times
		within time.Duration
	}{
		"on a machine without a processor": {schedstat.Times{Waited: time.Second}, longestStarved + 3*time.Minute},
		"that does nothing":                {schedstat.Times{Ran: 10 * time.Millisecond}, 2 * time.Minute},
	} {
		onNode(t, func(t *testing.T, f *fakeNode) {
			f.write("maxPods: 105\n")
			f.after(time.Second)
			f.with(func() { f.missing, f.processors = "podsync", as(tc.each) })
			if l, state, _ := f.after(tc.within); l.Config.MaxPods != 100 || state.Phase != WentBack || !strings.Contains(state.Error, "podsync does not answer") {
				t.Errorf("%s: %d pods, %+v", name, l.Config.MaxPods, state)
			}
		})
	}
}

func TestAServiceThatEndsAgainAndAgainIsJudgedWhateverTheMachineHasToDo(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.with(func() {
			f.crashes, f.processors = crashesWith("podsync", 105), as(schedstat.Times{Waited: time.Second})
		})
		f.write("maxPods: 105\n")
		if l, state, _ := f.after(time.Minute); l.Config.MaxPods != 100 || state.Phase != WentBack {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

// A start takes minutes there, and longer than a change is tried for.
func TestAChangeIsNotGoodSinceAServiceWithoutAProcessorWasSilentBeforeItCame(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.after(2 * time.Minute)
		f.with(func() { f.missing, f.processors = "podsync", as(schedstat.Times{Waited: 900 * time.Millisecond}) })
		f.after(5 * time.Second)
		f.write("maxPods: 105\n")
		if _, state, _ := f.after(3 * time.Minute); state.Phase == Good {
			t.Errorf("podsync never ran it: %+v", state)
		}
		f.with(func() { f.missing, f.crashes = "", crashesWith("podsync", 105) })
		f.run("podsync")
		if l, state, _ := f.after(30 * time.Minute); l.Config.MaxPods != 100 {
			t.Errorf("podsync ends with it each time, and nothing goes back: %d pods, %+v", l.Config.MaxPods, state)
		}
	})
}
