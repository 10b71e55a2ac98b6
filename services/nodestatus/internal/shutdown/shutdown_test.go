package shutdown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a machine with podsync, on virtual time.
type world struct {
	t      *testing.T
	start  time.Time
	line   chan Signal
	change chan struct{}

	mu   sync.Mutex
	pods []Pod
	// takes is how long a pod needs for its end; longer than its grace: it is killed then.
	takes map[string]time.Duration
	// refuses says that no stop is taken, never that one never will be, hangs that there
	// is no answer for those of the lowest priority.
	refuses, never, hangs bool
	stopped               map[string]bool
	untold                int
	mounted               Mounted
	fresh                 bool
	// unknown: podsync was just started, and does not know all pods.
	unknown bool
	story   []string
	// down is what the Node says; nil: nothing was said.
	down *bool
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, fmt.Sprintf("%ds ", int(time.Since(w.start).Seconds()))+fmt.Sprintf(format, args...))
}

func (w *world) Run(ctx context.Context, told func(Signal)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-w.line:
			told(s)
		}
	}
}

func (w *world) Done(time.Time)                       { w.say("done") }
func (w *world) Send(_ context.Context, e node.Event) { w.say("%s: %s", e.Reason, e.Message) }
func (w *world) SetNode(down bool) {
	w.mu.Lock()
	said := w.down
	w.down = &down
	w.mu.Unlock()
	if said != nil && *said != down || said == nil && down {
		w.say("node goes down: %v", down)
	}
}

func (w *world) Open(context.Context) error {
	w.say("admits: true")
	return nil
}

func (w *world) Mounted(context.Context) (Mounted, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mounted, nil
}

func (w *world) Untold(context.Context) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.untold, nil
}

func (w *world) Close(ctx context.Context, saw func(pods []Pod, fresh, whole bool)) error {
	for fresh := true; ; {
		w.mu.Lock()
		pods, whole := slices.Clone(w.pods), !w.unknown
		fresh, w.fresh = fresh || w.fresh, false
		w.mu.Unlock()
		if fresh {
			w.say("admits: false")
		}
		saw(pods, fresh, whole)
		fresh = false
		select {
		case <-ctx.Done():
			return nil
		case <-w.change:
		}
	}
}

func (w *world) Stop(ctx context.Context, p Pod, grace time.Duration) (bool, error) {
	w.mu.Lock()
	hangs := w.hangs && p.Priority == 0
	w.mu.Unlock()
	if hangs {
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second): // The call's own deadline.
		}
		return false, context.DeadlineExceeded
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.never:
		return false, nil
	case w.refuses:
		return false, errors.New("podsync is away")
	case w.stopped[p.UID]:
		return true, nil
	}
	w.stopped[p.UID] = true
	w.story = append(w.story, fmt.Sprintf("%ds stop %s within %s", int(time.Since(w.start).Seconds()), p.Name, grace))
	time.AfterFunc(w.takes[p.UID], func() { w.ends(p.UID) })
	return true, nil
}

func (w *world) ends(uid string) {
	w.say("%s ended", uid)
	w.edit(func() {
		for i := range w.pods {
			w.pods[i].Ended = w.pods[i].Ended || w.pods[i].UID == uid
		}
	})
}

func (w *world) edit(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	select {
	case w.change <- struct{}{}:
	default:
	}
}

// running runs a Manager of two groups while do runs, and returns what happened.
func running(t *testing.T, pods []Pod, do func(w *world)) string {
	t.Helper()
	return runningFrom(t, Groups(nil, 30*time.Second, 10*time.Second), pods, false, do)
}

// runningFrom is running; silent: the line has not said whether the machine goes down.
func runningFrom(t *testing.T, groups []Group, pods []Pod, silent bool, do func(w *world)) string {
	t.Helper()
	var story string
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, start: time.Now(), line: make(chan Signal), change: make(chan struct{}, 1), pods: pods,
			takes: map[string]time.Duration{}, stopped: map[string]bool{},
		}
		m := New(groups, Deps{Line: w, Pods: w, Events: w, SetNode: w.SetNode})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		if !silent {
			w.line <- Signal{}
		}
		synctest.Wait()
		do(w)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour) // What was stopped ends.
		w.mu.Lock()
		defer w.mu.Unlock()
		story = strings.Join(w.story, "\n")
	})
	return story
}

func pod(name string, priority int32) Pod {
	return Pod{UID: name, Namespace: "shop", Name: name, Priority: priority}
}

func wantStory(t *testing.T, got string, want ...string) {
	t.Helper()
	if got != strings.Join(want, "\n") {
		t.Errorf("it went\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// begin has the machine go down; it may be delayed for as long as the groups want.
func (w *world) begin() { w.line <- Signal{Since: time.Now(), Delay: time.Hour} }

func TestPodsEndByPriorityAndTheMachineWaitsForThemAndNoLonger(t *testing.T) {
	got := running(t, []Pod{pod("web", 5), pod("dns", systemCritical)}, func(w *world) {
		w.takes["web"], w.takes["dns"] = 3*time.Second, 4*time.Second
		w.begin()
		time.Sleep(time.Minute)
	})
	wantStory(t, got, "0s admits: true", "0s Shutdown: Shutdown manager detected shutdown event", "0s node goes down: true", "0s admits: false",
		"0s stop web within 20s", "3s web ended", "3s stop dns within 10s", "7s dns ended", "7s done")
}

func TestPodsOfAGroupWithoutTimeAreStoppedAllTheSame(t *testing.T) {
	for _, c := range []struct {
		total, critical time.Duration
		want            string
	}{
		{30 * time.Second, 0, "0s stop web within 30s\n30s stop dns within 0s\n30s done"},
		{5 * time.Second, 5 * time.Second, "0s stop web within 0s\n0s stop dns within 5s\n5s done"},
	} {
		got := runningFrom(t, Groups(nil, c.total, c.critical), []Pod{pod("web", 0), pod("dns", systemCritical)}, false, func(w *world) {
			w.takes["web"], w.takes["dns"] = time.Hour, time.Hour
			w.begin()
			time.Sleep(40 * time.Second)
		})
		if !strings.Contains(got, c.want) {
			t.Errorf("%s, %s of them for critical pods: it went\n%s\nwant\n%s", c.total, c.critical, got, c.want)
		}
	}
}

func TestAGroupWhosePeriodIsOverKeepsTheNextFromNothing(t *testing.T) {
	got := running(t, []Pod{pod("stuck", 0), pod("dns", systemCritical)}, func(w *world) {
		w.takes["stuck"], w.takes["dns"] = time.Hour, time.Hour
		w.begin()
		time.Sleep(40 * time.Second)
	})
	wantStory(t, got, "0s admits: true", "0s Shutdown: Shutdown manager detected shutdown event", "0s node goes down: true", "0s admits: false",
		"0s stop stuck within 20s", "20s stop dns within 10s", "30s done", "3600s stuck ended", "3620s dns ended")
}

func TestAPodsyncThatDoesNotAnswerTakesNoOtherGroupsTime(t *testing.T) {
	pods := []Pod{pod("dns", systemCritical)}
	for i := range 110 {
		pods = append(pods, pod(fmt.Sprint("web-", i), 0))
	}
	got := running(t, pods, func(w *world) {
		w.edit(func() { w.hangs = true })
		w.begin()
		time.Sleep(time.Minute)
	})
	if !strings.HasSuffix(got, "20s stop dns within 10s\n20s dns ended\n20s done") {
		t.Errorf("it went\n%s", got)
	}
}

func TestWithoutPodsTheMachineGoesDownAtOnce(t *testing.T) {
	got := running(t, []Pod{{UID: "over", Name: "over", Ended: true}}, func(w *world) {
		w.begin()
		time.Sleep(time.Second)
	})
	if !strings.HasSuffix(got, "0s done") || strings.Contains(got, "stop") {
		t.Errorf("it went\n%s", got)
	}
}

func TestAShutdownThatIsCalledOffOpensTheNodeAgain(t *testing.T) {
	got := running(t, []Pod{pod("slow", 0), pod("dns", systemCritical)}, func(w *world) {
		w.takes["slow"] = 10 * time.Second
		w.begin()
		time.Sleep(time.Second)
		w.line <- Signal{}
		time.Sleep(time.Minute)
	})
	wantStory(t, got, "0s admits: true", "0s Shutdown: Shutdown manager detected shutdown event", "0s node goes down: true", "0s admits: false",
		"0s stop slow within 20s", "1s Shutdown: Shutdown manager detected shutdown cancellation", "1s node goes down: false", "1s admits: true", "10s slow ended")
}

func TestADelayThatIsShorterThanThePeriodsCutsThem(t *testing.T) {
	got := running(t, []Pod{pod("stuck", 0), pod("dns", systemCritical)}, func(w *world) {
		w.takes["stuck"], w.takes["dns"] = time.Hour, time.Hour
		w.line <- Signal{Since: time.Now(), Delay: 5 * time.Second}
		time.Sleep(20 * time.Second)
	})
	if !strings.Contains(got, "\n5s done") {
		t.Errorf("it went\n%s", got)
	}
}

func TestADelayThatIsShorterThanThePeriodsCutsAllAlike(t *testing.T) {
	got := running(t, []Pod{pod("stuck", 0), pod("dns", systemCritical)}, func(w *world) {
		w.takes["stuck"], w.takes["dns"] = time.Hour, time.Second
		w.line <- Signal{Since: time.Now(), Delay: 15 * time.Second}
		time.Sleep(30 * time.Second)
	})
	if want := "0s stop stuck within 10s\n10s stop dns within 5s\n11s dns ended\n11s done"; !strings.Contains(got, want) {
		t.Errorf("it went\n%s\nwant\n%s", got, want)
	}
}

func TestAProcessThatStartsInAShutdownLeavesTheLastPodsTheirTime(t *testing.T) {
	got := running(t, []Pod{pod("stuck", 0), pod("dns", systemCritical)}, func(w *world) {
		w.takes["stuck"], w.takes["dns"] = time.Hour, 9*time.Second
		w.line <- Signal{Since: time.Now().Add(-15 * time.Second), Delay: time.Hour}
		time.Sleep(20 * time.Second)
	})
	if want := "0s stop stuck within 20s\n5s stop dns within 10s\n14s dns ended\n14s done"; !strings.Contains(got, want) {
		t.Errorf("it went\n%s\nwant\n%s", got, want)
	}
}

func TestAShutdownThatBeganBeforeThisProcessHasTheTimeThatIsLeft(t *testing.T) {
	got := running(t, []Pod{pod("stuck", 0)}, func(w *world) {
		w.takes["stuck"] = time.Hour
		w.line <- Signal{Since: time.Now().Add(-25 * time.Second), Delay: time.Hour}
		time.Sleep(20 * time.Second)
	})
	if !strings.Contains(got, "\n5s done") {
		t.Errorf("it went\n%s", got)
	}
}

func TestAPodsyncThatComesBackIsToldAgain(t *testing.T) {
	got := running(t, []Pod{pod("slow", 0)}, func(w *world) {
		w.takes["slow"] = 10 * time.Second
		w.begin()
		time.Sleep(time.Second)
		// It has forgotten the stop of a static pod.
		w.edit(func() { w.fresh, w.stopped = true, map[string]bool{} })
		time.Sleep(time.Minute)
	})
	if strings.Count(got, "stop slow") != 2 || strings.Count(got, "admits: false") != 2 {
		t.Errorf("it went\n%s", got)
	}
}

// anew has podsync start anew, which has forgotten the stop of a static pod and starts it.
func (w *world) anew(static string) {
	w.edit(func() {
		w.fresh, w.stopped = true, map[string]bool{}
		for i := range w.pods {
			w.pods[i].Ended = w.pods[i].Ended && w.pods[i].UID != static
		}
	})
}

func TestAPodOfAGroupThatHasEndedEndsAgainWhenItBeginsAnew(t *testing.T) {
	got := running(t, []Pod{pod("static", 0), pod("dns", systemCritical)}, func(w *world) {
		w.takes["static"], w.takes["dns"] = time.Second, 8*time.Second
		w.begin()
		time.Sleep(4 * time.Second)
		w.anew("static")
		time.Sleep(time.Minute)
	})
	if !strings.Contains(got, "\n4s stop static within 10s\n") || !strings.Contains(got, "\n5s static ended\n") || !strings.Contains(got, "\n9s dns ended\n9s done") {
		t.Errorf("while the next group ends: it went\n%s", got)
	}
	got = running(t, []Pod{pod("static", 0)}, func(w *world) {
		w.takes["static"] = 3 * time.Second
		w.edit(func() { w.untold = 1 })
		w.begin()
		time.Sleep(5 * time.Second)
		w.anew("static")
		time.Sleep(time.Second)
		w.edit(func() { w.untold = 0 })
		time.Sleep(time.Minute)
	})
	if !strings.Contains(got, "\n5s stop static within 10s\n") || !strings.HasSuffix(got, "\n8s static ended\n8s done") {
		t.Errorf("while the apiserver hears: it went\n%s", got)
	}
}

func TestAPodThatHasNotEndedInItsTimeIsNotWaitedForWithTheNextGroup(t *testing.T) {
	got := running(t, []Pod{pod("stuck", 0), pod("dns", systemCritical)}, func(w *world) {
		w.takes["stuck"], w.takes["dns"] = time.Hour, time.Second
		w.begin()
		time.Sleep(time.Minute)
	})
	if !strings.HasSuffix(got, "21s dns ended\n21s done\n3600s stuck ended") {
		t.Errorf("it went\n%s", got)
	}
}

func TestAPodsyncThatWasJustStartedIsNotBelievedThatThereAreNoPods(t *testing.T) {
	got := running(t, nil, func(w *world) {
		w.takes["web"] = time.Second
		w.edit(func() { w.unknown = true })
		w.begin()
		time.Sleep(2 * time.Second)
		w.edit(func() { w.unknown, w.pods = false, []Pod{pod("web", 0)} })
		time.Sleep(time.Minute)
	})
	if !strings.HasSuffix(got, "2s stop web within 20s\n3s web ended\n3s done") {
		t.Errorf("it went\n%s", got)
	}
}

func TestAStopThatIsNotTakenIsAskedForAgain(t *testing.T) {
	got := running(t, []Pod{pod("web", 0)}, func(w *world) {
		w.edit(func() { w.refuses = true })
		w.begin()
		time.Sleep(4500 * time.Millisecond)
		w.edit(func() { w.refuses = false })
		time.Sleep(time.Minute)
	})
	if !strings.Contains(got, "4s stop web") && !strings.Contains(got, "5s stop web") || !strings.Contains(got, "done") {
		t.Errorf("it went\n%s", got)
	}
}

func TestAPodsyncThatStopsNothingKeepsTheMachineFromNothing(t *testing.T) {
	got := running(t, []Pod{pod("web", 0)}, func(w *world) {
		w.edit(func() { w.never = true })
		w.begin()
		time.Sleep(time.Second)
	})
	if !strings.HasSuffix(got, "0s done") {
		t.Errorf("it went\n%s", got)
	}
}

func TestTheMachineWaitsForTheApiserverToHearOfTheEndsButNotForLong(t *testing.T) {
	for name, c := range map[string]struct {
		heard time.Duration
		want  string
	}{"it hears soon": {3 * time.Second, "done"}, "it is away": {time.Hour, "10s done"}} {
		got := running(t, []Pod{pod("web", 0)}, func(w *world) {
			w.edit(func() { w.untold = 1 })
			w.begin()
			time.Sleep(c.heard)
			w.edit(func() { w.untold = 0 })
			time.Sleep(20 * time.Second)
		})
		if !strings.HasSuffix(got, c.want) || c.heard < time.Minute && !strings.HasSuffix(got, "3s done") {
			t.Errorf("%s: it went\n%s", name, got)
		}
	}
}

func TestAProcessThatStartsInAShutdownAdmitsNothingMeanwhile(t *testing.T) {
	got := runningFrom(t, Groups(nil, 30*time.Second, 10*time.Second), []Pod{pod("web", 0)}, true, func(w *world) {
		time.Sleep(time.Second)
		w.begin()
		time.Sleep(10 * time.Second)
	})
	if strings.Contains(got, "admits: true") {
		t.Errorf("it went\n%s", got)
	}
	got = runningFrom(t, Groups(nil, 30*time.Second, 10*time.Second), nil, true, func(*world) { time.Sleep(unheardWait + time.Second) })
	wantStory(t, got, "10s admits: true")
}

func TestTheNextPodsEndWhenTheVolumesOfTheFirstAreTakenDown(t *testing.T) {
	got := running(t, []Pod{pod("web", 0), pod("driver", systemCritical)}, func(w *world) {
		w.edit(func() { w.mounted.UIDs = []string{"web"} })
		time.AfterFunc(5*time.Second, func() { w.edit(func() { w.mounted = Mounted{} }) })
		w.begin()
		time.Sleep(20 * time.Second)
	})
	if !strings.Contains(got, "\n0s web ended\n5s stop driver within 10s") {
		t.Errorf("it went\n%s", got)
	}
	got = running(t, []Pod{pod("web", 0)}, func(w *world) {
		w.edit(func() { w.mounted.Unnamed = 1 })
		w.begin()
		time.Sleep(40 * time.Second)
	})
	if !strings.Contains(got, "\n30s done") {
		t.Errorf("volumes that stay keep the machine: it went\n%s", got)
	}
}

func TestVolumesOfAGroupThatHadItsTimeTakeNoneOfTheNextOnes(t *testing.T) {
	for name, c := range map[string]struct {
		mounted Mounted
		want    string
	}{
		"a volume of the first group's that does not go": {Mounted{UIDs: []string{"web"}}, "\n20s stop dns within 10s\n20s dns ended\n20s done"},
		"one of the second's":                            {Mounted{UIDs: []string{"dns"}}, "\n0s stop dns within 10s\n0s dns ended\n10s done"},
		"one of a pod that nobody knows":                 {Mounted{UIDs: []string{"x"}}, "\n20s stop dns within 10s\n20s dns ended\n30s done"},
		"an older podsync's, which does not name it":     {Mounted{Unnamed: 1}, "\n20s stop dns within 10s\n20s dns ended\n30s done"},
	} {
		got := running(t, []Pod{pod("web", 0), pod("dns", systemCritical)}, func(w *world) {
			w.edit(func() { w.mounted = c.mounted })
			w.begin()
			time.Sleep(time.Minute)
		})
		if !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: it went\n%s\nwant\n%s", name, got, c.want)
		}
	}
}
