package liveconf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/internal/kubeletconfig"
)

// onNode runs a story on a node that has run well with maxPods 100.
func onNode(t *testing.T, story func(t *testing.T, f *fakeNode)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNode(t)
		f.write("maxPods: 100\n")
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		if _, state, restarts := f.after(2 * time.Minute); state.Phase != Good || state.Generation != 1 || restarts != "" {
			t.Fatalf("at first: %+v, started again %q", state, restarts)
		}
		story(t, f)
		f.end()
	})
}

func crashesWith(service string, pods int32) func(string, *kubeletconfig.Loaded) bool {
	return func(s string, l *kubeletconfig.Loaded) bool { return s == service && l.Config.MaxPods == pods }
}

func TestAChangeReachesItsOwnersAndIsGoodAfterTheDeadline(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.write("maxPods: 101\n")
		l, state, restarts := f.after(5 * time.Second)
		if l.Config.MaxPods != 101 || state.Phase != Trying || restarts != "podsync nodestatus" {
			t.Errorf("while it is tried: %d pods, %+v, started again %q", l.Config.MaxPods, state, restarts)
		}
		l, state, restarts = f.after(2 * time.Minute)
		if l.Config.MaxPods != 101 || state.Phase != Good || state.Generation != 2 || restarts != "" {
			t.Errorf("after the deadline: %d pods, %+v, started again %q", l.Config.MaxPods, state, restarts)
		}
		if good := LastKnownGood(f.dir, f.args); good == nil || good.Config.MaxPods != 101 {
			t.Error("it is not the last known good one")
		}
	})
}

func TestAFileThatIsWrittenAgainWithTheSameTouchesNobody(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.write("# a comment\nmaxPods: 100\n")
		if _, state, restarts := f.after(time.Minute); state.Phase != Good || state.Generation != 1 || restarts != "" {
			t.Errorf("%+v, started again %q", state, restarts)
		}
		f.write("maxPods: 100\ncpuManagerReconcilePeriod: 11s\n") // which nobody uses
		if l, state, restarts := f.after(time.Minute); state.Phase != Good || state.Generation != 2 || restarts != "" || l.Config.CPUManagerReconcilePeriod.Duration != 11*time.Second {
			t.Errorf("%+v, started again %q", state, restarts)
		}
	})
}

func TestAConfigurationThatMakesItsOwnerCrashGoesBackByItself(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.crashes = crashesWith("podsync", 102)
		f.write("maxPods: 102\n")
		l, state, restarts := f.after(10 * time.Second)
		if l.Config.MaxPods != 100 || state.Phase != WentBack || restarts != "podsync podsync" {
			t.Errorf("%d pods, %+v, started again %q", l.Config.MaxPods, state, restarts)
		}
		f.allRun(t)
		for _, want := range []string{"maxPods: 100 → 102", "podsync ended 3 times", "it says why"} {
			if !strings.Contains(state.Error, want) || !f.said("going back", want) {
				t.Errorf("no %q in %q or in the log", want, state.Error)
			}
		}
		if raw, err := os.ReadFile(state.File); err != nil || !strings.Contains(string(raw), `"maxPods":102`) {
			t.Errorf("the bad one is not kept: %v %s", err, raw)
		}
		if l, state, restarts := f.after(time.Hour); l.Config.MaxPods != 100 || state.Phase != WentBack || restarts != "" {
			t.Errorf("an hour later: %d pods, %+v, started again %q", l.Config.MaxPods, state, restarts)
		}
		f.write("maxPods: 103\n")
		if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 103 || state.Phase != Good || state.Error != "" {
			t.Errorf("the corrected one: %d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

func TestTheSecondOwnerTakesTheFirstOneBackWithIt(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.crashes = crashesWith("nodestatus", 102)
		f.write("maxPods: 102\n")
		l, state, restarts := f.after(10 * time.Second)
		if l.Config.MaxPods != 100 || state.Phase != WentBack || restarts != "podsync nodestatus podsync nodestatus" {
			t.Errorf("%d pods, %+v, started again %q", l.Config.MaxPods, state, restarts)
		}
	})
}

func TestHealthThatStaysBadGoesBackAndHealthThatRecoversDoesNot(t *testing.T) {
	lacking := func(pods int32) func(string, *kubeletconfig.Loaded) map[string]string {
		return func(_ string, l *kubeletconfig.Loaded) map[string]string {
			out := map[string]string{"stats": "never there"}
			if l.Config.MaxPods == pods {
				out["runtime"] = "no answer"
			}
			return out
		}
	}
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.lacks = lacking(102)
		f.write("maxPods: 102\n")
		if l, state, _ := f.after(50 * time.Second); l.Config.MaxPods != 102 || state.Phase != Trying {
			t.Errorf("before the deadline: %d pods, %+v", l.Config.MaxPods, state)
		}
		if l, state, _ := f.after(30 * time.Second); l.Config.MaxPods != 100 || state.Phase != WentBack || !strings.Contains(state.Error, "podsync cannot use runtime, which it could before: no answer") {
			t.Errorf("after it: %d pods, %+v", l.Config.MaxPods, state)
		}
	})
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.lacks = lacking(102)
		f.write("maxPods: 102\n")
		f.after(50 * time.Second)
		f.mu.Lock()
		f.lacks = lacking(0)
		f.mu.Unlock()
		if l, state, _ := f.after(30 * time.Second); l.Config.MaxPods != 102 || state.Phase != Trying {
			t.Errorf("the deadline begins with health: %d pods, %+v", l.Config.MaxPods, state)
		}
		if l, state, _ := f.after(time.Minute); l.Config.MaxPods != 102 || state.Phase != Good {
			t.Errorf("recovered: %d pods, %+v", l.Config.MaxPods, state)
		}
	})
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.ill = func(service string, l *kubeletconfig.Loaded) string {
			if service == "podsync" && l.Config.MaxPods == 102 {
				return "syncloop: stuck"
			}
			return ""
		}
		f.write("maxPods: 102\n")
		if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 100 || !strings.Contains(state.Error, "syncloop: stuck") {
			t.Errorf("a check that fails: %d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

func TestWhatCannotBeUsedIsRefusedAndTouchesNobody(t *testing.T) {
	for text, want := range map[string]string{
		"raw:apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Kube": "kind",
		"raw:":                                   "empty",
		"maxPods: many\n":                        "maxPods",
		"maxPods: 100\ncgroupDriver: systemd\n":  "drain the node",
		"maxPods: -1\n":                          "maxPods",
		"maxPods: 100\npodLogsDir: /elsewhere\n": "podLogsDir",
	} {
		onNode(t, func(t *testing.T, f *fakeNode) {
			f.write(text)
			if _, state, _ := f.after(time.Second); state.Phase != Good {
				t.Errorf("%q, which may be half written: %+v", text, state)
			}
			l, state, restarts := f.after(time.Minute)
			if l.Config.MaxPods != 100 || state.Phase != Refused || restarts != "" || !strings.Contains(state.Error, want) {
				t.Errorf("%q: %+v, started again %q", text, state, restarts)
			}
			f.write("maxPods: 100\n")
			if _, state, restarts := f.after(time.Minute); state.Phase != Good || state.Error != "" || restarts != "" {
				t.Errorf("%q mended: %+v, started again %q", text, state, restarts)
			}
		})
	}
}

func TestAHalfWrittenFileIsWaitedFor(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.write("raw:apiVersion: kubelet.config")
		f.after(time.Second)
		f.write("maxPods: 104\n")
		if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 104 || state.Phase != Good || f.said("is not taken") {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

func TestAChangeDuringATrialGoesBackToWhatWasGood(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.crashes = crashesWith("podsync", 106)
		f.write("maxPods: 105\n")
		f.after(10 * time.Second)
		f.write("maxPods: 106\n")
		if l, state, _ := f.after(20 * time.Second); l.Config.MaxPods != 100 || state.Phase != WentBack {
			t.Errorf("%d pods, %+v", l.Config.MaxPods, state)
		}
		f.allRun(t)
	})
	onNode(t, func(t *testing.T, f *fakeNode) { // the first change was another service's
		f.crashes = crashesWith("podsync", 106)
		f.write("maxPods: 100\nhealthzPort: 7\n")
		f.after(10 * time.Second)
		f.write("maxPods: 106\nhealthzPort: 7\n")
		if l, state, restarts := f.after(20 * time.Second); l.Config.MaxPods != 100 || *l.Config.HealthzPort == 7 || state.Phase != WentBack || restarts != "podsync podsync gateway" {
			t.Errorf("%d pods, %+v, started again %q", l.Config.MaxPods, state, restarts)
		}
		f.allRun(t)
	})
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.write("maxPods: 105\n")
		f.after(10 * time.Second)
		f.write("maxPods: 100\n")
		if l, state, _ := f.after(5 * time.Second); l.Config.MaxPods != 100 || state.Phase != Good {
			t.Errorf("written back: %d pods, %+v", l.Config.MaxPods, state)
		}
		f.allRun(t)
	})
}

func TestAPersonTakesAChangeBackAndHasItTriedAgain(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.write("maxPods: 101\n")
		f.after(2 * time.Minute)
		f.controller.Back()
		if l, state, restarts := f.after(10 * time.Second); l.Config.MaxPods != 100 || state.Phase != WentBack || restarts != "podsync nodestatus" || !strings.Contains(state.Error, "polylet config rollback") {
			t.Errorf("%d pods, %+v, started again %q", l.Config.MaxPods, state, restarts)
		}
		f.controller.Changed() // the file says 101 still
		if l, _, restarts := f.after(time.Minute); l.Config.MaxPods != 100 || restarts != "" {
			t.Errorf("%d pods, started again %q", l.Config.MaxPods, restarts)
		}
		f.controller.Retry()
		if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 101 || state.Phase != Good {
			t.Errorf("tried again: %d pods, %+v", l.Config.MaxPods, state)
		}
		f.allRun(t)
	})
}

func TestAFirstConfigurationIsGoodWhenItsServicesRunWellInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNode(t)
		f.crashes = crashesWith("podsync", 100)
		f.write("maxPods: 100\n")
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		if l, state, restarts := f.after(time.Minute); l.Config.MaxPods != 100 || state.Phase != Good || restarts != "" || LastKnownGood(f.dir, f.args) != nil {
			t.Errorf("as without live configuration: %+v, started again %q", state, restarts)
		}
		f.mu.Lock()
		f.crashes = crashesWith("podsync", 0)
		f.mu.Unlock()
		if f.after(10 * time.Minute); LastKnownGood(f.dir, f.args) == nil {
			t.Error("it never becomes the last known good one")
		}
		f.end()
	})
}

func TestPolyletRunCanBeKilledAtEachStep(t *testing.T) {
	for name, bad := range map[string]bool{"a good change": false, "a bad change": true, "a good change, and it knows": false, "a bad change, and it knows": true} {
		for at := 1; ; at++ {
			killed := false
			onNode(t, func(t *testing.T, f *fakeNode) {
				want := int32(107)
				if bad {
					f.crashes, want = crashesWith("nodestatus", 107), 100
				}
				f.steps, f.killAt = 0, at
				f.write("maxPods: 107\n")
				f.after(2 * time.Minute)
				killed = f.steps >= at
				f.end()
				f.killAt, f.running = 0, strings.HasSuffix(name, "knows")
				if err := f.start(); err != nil {
					t.Fatalf("%s, killed at %d: %v", name, at, err)
				}
				if l, state, _ := f.after(5 * time.Minute); l.Config.MaxPods != want || (state.Phase == Good) == bad {
					t.Errorf("%s, killed at step %d: %d pods, %+v", name, at, l.Config.MaxPods, state)
				}
				left, err := filepath.Glob(filepath.Join(f.dir, ".*"))
				if err != nil || len(left) > 0 {
					t.Errorf("%s, killed at step %d, left %v", name, at, left)
				}
			})
			if !killed {
				if at < 5 {
					t.Fatalf("%s has only %d steps", name, at)
				}
				break
			}
		}
	}
}

func ExampleState_Text() {
	fmt.Println(State{Phase: Refused, Generation: 4, Error: "maxPods: -1 is below 0"}.Text())
	// Output: what the files say is not taken, generation 4 goes on: maxPods: -1 is below 0
}
