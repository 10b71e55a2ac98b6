package shutdown

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhetherTheMachineGoesDownIsSaidOfTheNodeAsSoonAsItIsKnown(t *testing.T) {
	said := func(w *world) string {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.down == nil {
			return "nothing"
		}
		return fmt.Sprint(*w.down)
	}
	for name, c := range map[string]struct {
		hears bool
		then  string
	}{"it is told": {true, "false"}, "nobody tells": {false, "nothing"}} {
		runningFrom(t, Groups(nil, 30*time.Second, 10*time.Second), nil, true, func(w *world) {
			if got := said(w); got != "nothing" {
				t.Errorf("%s: before, it said %s", name, got)
			}
			if c.hears {
				w.line <- Signal{}
			}
			synctest.Wait()
			if got := said(w); got != c.then {
				t.Errorf("%s: it said %s", name, got)
			}
			time.Sleep(unheardWait + time.Second)
			if got := said(w); got != "false" {
				t.Errorf("%s: in the end it said %s", name, got)
			}
		})
	}
}

func TestPodsHaveTheirTimeWhateverTheClockIsSetTo(t *testing.T) {
	for name, set := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		got := running(t, []Pod{pod("web", 5)}, func(w *world) {
			w.takes["web"] = time.Hour
			w.line <- Signal{Since: time.Now().Add(-set), Began: time.Now(), Delay: 15 * time.Second}
			time.Sleep(time.Minute)
		})
		if !strings.Contains(got, "0s stop web within 10s") || !strings.Contains(got, "10s done") {
			t.Errorf("%s: it went\n%s", name, got)
		}
	}
}

func TestAPodWhoseStopWasTakenLateInItsGroupsTimeIsWaitedForWhileTheMachineHasTime(t *testing.T) {
	for taken, want := range map[time.Duration]string{
		19500 * time.Millisecond: "\n20s dns ended\n24s web ended\n24s done",
		500 * time.Millisecond:   "\n20s dns ended\n20s done\n40s web ended",
	} {
		got := running(t, []Pod{pod("web", 0), pod("dns", systemCritical)}, func(w *world) {
			w.takes["web"] = 5 * time.Second
			if taken < time.Second {
				w.takes["web"] = 40 * time.Second // It has had its time.
			}
			w.edit(func() { w.refuses = true })
			w.begin()
			time.Sleep(taken)
			w.edit(func() { w.refuses = false })
			time.Sleep(time.Minute)
		})
		if !strings.HasSuffix(got, want) {
			t.Errorf("taken after %s: it went\n%s\nwant\n%s", taken, got, want)
		}
	}
}
