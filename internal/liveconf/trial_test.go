package liveconf

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/kubeletconfig"
)

func TestATrialIsJudgedByEndsAndByHowLongItsOwnersWereWell(t *testing.T) {
	const minute = time.Minute
	type seen struct {
		at  time.Duration
		bad string // "": well; "end": podsync ended; "other": a service ended that is no owner
	}
	for name, tc := range map[string]struct {
		seen []seen
		at   time.Duration
		good bool
		bad  string
	}{
		"nothing seen":         {nil, minute, false, ""},
		"well for a minute":    {[]seen{{0, ""}}, minute, true, ""},
		"well for less":        {[]seen{{1, ""}}, minute, false, ""},
		"two ends and well":    {[]seen{{0, "end"}, {1, "end"}, {2, ""}}, minute + 2, true, ""},
		"an end begins anew":   {[]seen{{0, ""}, {50 * time.Second, "end"}, {51 * time.Second, ""}}, minute, false, ""},
		"three ends":           {[]seen{{0, "end"}, {1, "end"}, {2, "end"}}, 3, false, "podsync ended 3 times with it, last: boom"},
		"ends of another":      {[]seen{{0, "other"}, {1, "other"}, {2, "other"}, {3, ""}}, minute + 3, true, ""},
		"bad for a minute":     {[]seen{{0, "cold"}}, minute, false, "for 1m0s: cold"},
		"bad and well again":   {[]seen{{0, "cold"}, {30 * time.Second, ""}}, minute, false, ""},
		"up and down for long": {[]seen{{0, ""}, {4*minute + 50*time.Second, "cold"}}, 5 * minute, false, "never well for 1m0s"},
	} {
		tr := newTrial(minute, nil, []string{"podsync"}, nil)
		for _, s := range tc.seen {
			switch at := tr.began.Add(s.at); s.bad {
			case "end":
				tr.end("podsync", errors.New("boom"))
			case "other":
				tr.end("gateway", errors.New("boom"))
			default:
				tr.look(at, s.bad)
			}
		}
		good, bad := tr.verdict(tr.began.Add(tc.at))
		if good != tc.good || (bad == nil) != (tc.bad == "") || bad != nil && !strings.Contains(bad.Error(), tc.bad) {
			t.Errorf("%s: %v, %v", name, good, bad)
		}
	}
}

func TestAMistakeThatIsMadeDuringATrialIsShownWhenThatIsOver(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.write("maxPods: 101\n")
		f.after(10 * time.Second)
		f.write("maxPods: many\n")
		if _, state, _ := f.after(10 * time.Second); state.Phase != Trying || !f.said("is not taken", "maxPods") {
			t.Errorf("during it: %+v", state)
		}
		if l, state, _ := f.after(5 * time.Minute); l.Config.MaxPods != 101 || state.Phase != Refused || !strings.Contains(state.Error, "maxPods") {
			t.Errorf("after it: %d pods, %+v", l.Config.MaxPods, state)
		}
		if good := LastKnownGood(f.dir, f.args); good == nil || good.Config.MaxPods != 101 {
			t.Error("what was tried is not the good one")
		}
	})
	onNode(t, func(t *testing.T, f *fakeNode) { // what was bad before
		f.crashes = crashesWith("podsync", 102)
		f.write("maxPods: 102\n")
		f.after(time.Minute)
		f.write("maxPods: 101\n")
		f.after(10 * time.Second)
		f.write("maxPods: 102\n")
		if l, state, _ := f.after(5 * time.Minute); l.Config.MaxPods != 101 || state.Phase != WentBack {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

func TestACheckThatFailedBeforeTheChangeCountsForNothing(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.ill = func(service string, _ *kubeletconfig.Loaded) string {
			if service == "podsync" {
				return "log: the disk is full"
			}
			return ""
		}
		f.write("maxPods: 101\n") // which may be what mends it, in a while
		if l, state, _ := f.after(3 * time.Minute); l.Config.MaxPods != 101 || state.Phase != Good {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

func TestASecondChangeIsComparedWithWhatWasBeforeTheFirst(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.lacks = func(_ string, l *kubeletconfig.Loaded) map[string]string {
			if l.Config.MaxPods >= 102 {
				return map[string]string{"runtime": "no answer"}
			}
			return nil
		}
		f.write("maxPods: 102\n")
		f.after(20 * time.Second)
		f.write("maxPods: 103\n")
		if l, state, _ := f.after(3 * time.Minute); l.Config.MaxPods != 100 || state.Phase != WentBack || !strings.Contains(state.Error, "cannot use runtime") {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

// TestAChangeThatIsWellAtLastIsNotBadMeanwhile: services that take long to come up leave
// less than a deadline of the time that a trial may take.
func TestAChangeThatIsWellAtLastIsNotBadMeanwhile(t *testing.T) {
	tr := newTrial(time.Minute, nil, []string{"podsync"}, nil)
	at := func(after time.Duration, bad string) (bool, error) {
		tr.look(tr.began.Add(after), bad)
		return tr.verdict(tr.began.Add(after))
	}
	for minute := range 4 {
		at(time.Duration(minute)*time.Minute, "it does not answer")
		at(time.Duration(minute)*time.Minute+50*time.Second, "")
	}
	if _, err := at(4*time.Minute+30*time.Second, "it does not answer"); err != nil {
		t.Fatal(err)
	}
	if good, err := at(4*time.Minute+40*time.Second, ""); good || err != nil {
		t.Fatal(good, err)
	}
	if good, err := at(longest*time.Minute+time.Second, ""); good || err != nil {
		t.Errorf("well for 21 s: good %v, %v", good, err)
	}
	if good, err := at(5*time.Minute+41*time.Second, ""); !good || err != nil {
		t.Errorf("well for a minute: good %v, %v", good, err)
	}
}

// It answered nothing when the change came, and does not start with it.
func TestAServiceThatIsJustStartingWhenAChangeComesIsJudged(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.mu.Lock()
		f.missing = "podsync"
		f.mu.Unlock()
		time.AfterFunc(3*time.Second, func() {
			f.mu.Lock()
			f.missing = ""
			f.mu.Unlock()
		})
		f.write("maxPods: 105\n")
		f.after(6 * time.Second)
		f.mu.Lock()
		f.missing = "podsync" // it cannot start with it, and who keeps it says nothing
		f.mu.Unlock()
		if l, state, _ := f.after(5 * time.Minute); l.Config.MaxPods != 100 || state.Phase != WentBack || !strings.Contains(state.Error, "podsync does not answer") {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
	})
}
