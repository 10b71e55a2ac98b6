package plan

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func TestTheNodesOwnReasonIsKeptBeforeItIsActedUpon(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.s.Stop, w.s.StopUnkept = &podstate.Stop{Reason: "Evicted", Message: "low"}, true
	keep := podstate.Key{Kind: podstate.KeepStop}
	out := Plan(w.s)
	if len(out.Actions) != 1 || out.Actions[0].Key != keep || out.Actions[0].Stop != w.s.Stop || out.Terminating {
		t.Fatalf("actions %+v", out.Actions)
	}
	w.s.InFlight[keep] = out.Actions[0]
	w.end(w.newest("a"), 1)
	if out = Plan(w.s); len(out.Actions) != 0 || out.Terminating {
		t.Errorf("while it is being kept: %+v", out.Actions)
	}
	delete(w.s.InFlight, keep)
	w.s.Failures[keep] = Failure{Count: 1, At: w.s.Now, Message: "no space left on device"}
	if out = Plan(w.s); !out.Terminating {
		t.Error("a full disk holds the end up")
	}
	delete(w.s.Failures, keep) // as when the spec changes
	w.s.EndSince = w.s.Now
	if out = Plan(w.s); out.Status.Reason != "Evicted" {
		t.Errorf("the reason that was acted upon is forgotten: %+v", out.Status)
	}
	w.s.StopUnkept = false
	if w.settle(time.Minute); w.out.Status.Phase != v1.PodFailed || w.out.Status.Reason != "Evicted" {
		t.Errorf("status %+v", w.out.Status)
	}
}

// A critical pod takes the place of one whose containers all end well; it has succeeded.
func TestAPreemptedPodWhoseContainersEndWellHasSucceeded(t *testing.T) {
	pod := restartingPod("side")
	w := newWorld(pod)
	w.exits["init"] = []int32{0, 0}
	w.settle(time.Minute)
	w.s.Stop = &podstate.Stop{Reason: "Preempting", ByContainers: true}
	for i := range w.s.Observed.Containers {
		if c := &w.s.Observed.Containers[i]; c.State == podstate.StateRunning {
			code := int32(0)
			if c.Name == "side" {
				code = exitForAll
			}
			w.s.Stops[c.ID] = asked(w.s.Now, podstate.CauseEnd, 30)
			w.end(c, code)
		}
	}
	w.s.EndSince = w.s.Now
	w.settle(time.Minute)
	if got := w.out.Status.Phase; got != v1.PodSucceeded {
		t.Errorf("phase %s, want Succeeded: all regular containers exited with 0", got)
	}
}

func TestAPodThatTheNodeEndsMayTakeHalfAsLongAgain(t *testing.T) {
	for _, tc := range []struct {
		grace int64
		want  time.Duration
	}{{30, 45 * time.Second}, {2, 10 * time.Second}, {math.MaxInt64, podutil.Seconds(math.MaxInt64) + podutil.Seconds(math.MaxInt64)/2}} {
		pod := testPod(v1.RestartPolicyAlways, "a")
		pod.Spec.TerminationGracePeriodSeconds = &tc.grace
		w := newWorld(pod)
		w.settle(time.Minute)
		w.s.Stop = &podstate.Stop{Reason: "Evicted"}
		w.s.EndSince = w.s.Now
		key := podstate.Key{Kind: podstate.KillContainer, Object: w.newest("a").ID}
		w.s.InFlight[key] = podstate.Action{Key: key, GraceTotalSeconds: tc.grace}
		if out := Plan(w.s); out.Overdue || !out.Wake.Equal(w.s.Now.Add(tc.want)) {
			t.Errorf("grace %d: overdue %v, wakes after %v", tc.grace, out.Overdue, out.Wake.Sub(w.s.Now))
		}
		w.s.Now = w.s.Now.Add(tc.want)
		if !Plan(w.s).Overdue {
			t.Errorf("grace %d: not overdue after %v", tc.grace, tc.want)
		}
	}
}

func TestTheTimeThatAPodMayTakeBeginsAnewWithAShorterPeriod(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.s.EndSince = w.s.Now
	w.s.TakeStop(podstate.Stop{Reason: "Evicted"}, true, w.s.Now)
	w.s.Now = w.s.Now.Add(25 * time.Second)
	none := int64(0)
	w.s.TakeStop(podstate.Stop{GraceSeconds: &none}, true, w.s.Now)
	key := podstate.Key{Kind: podstate.KillContainer, Object: w.newest("a").ID}
	w.s.InFlight[key] = podstate.Action{Key: key}
	if out := Plan(w.s); out.Overdue || !out.Wake.Equal(w.s.Now.Add(10*time.Second)) {
		t.Errorf("overdue %v, wakes after %v", out.Overdue, out.Wake.Sub(w.s.Now))
	}
}

// What the status of an evicted pod says of each container, however far that has come.
func TestAnEvictedPodSaysOfEachContainerHowItEnded(t *testing.T) {
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		play func(w *world)
		want string // state of the container a
	}{
		{"it ran", testPod(v1.RestartPolicyAlways, "a"), func(w *world) { w.settle(time.Minute) }, "Error 137"},
		{"it took the signal well", testPod(v1.RestartPolicyAlways, "a"), func(w *world) { w.killCode = 0; w.settle(time.Minute) }, "Completed 0"},
		{"it was in back-off", testPod(v1.RestartPolicyAlways, "a"), func(w *world) { w.exits["a"] = []int32{3, 3, 3, 3, 3, 3}; w.settle(20 * time.Second) }, "Error 3"},
		{"it never started", testPod(v1.RestartPolicyAlways, "a"), func(*world) {}, "ContainerStatusUnknown 137"},
	} {
		w := newWorld(tc.pod)
		tc.play(w)
		w.s.TakeStop(podstate.Stop{Reason: "Evicted", Message: "low", Condition: &v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet", Message: "low"}}, true, w.s.Now)
		w.settle(time.Minute)
		st := w.out.Status
		if st.Phase != v1.PodFailed || st.Reason != "Evicted" || st.Message != "low" || reasonFor(st, v1.DisruptionTarget) != "TerminationByKubelet" || condition(st, v1.PodReady) != v1.ConditionFalse {
			t.Errorf("%s: status %+v", tc.name, st)
		}
		if end := st.ContainerStatuses[0].State.Terminated; end == nil || fmt.Sprint(end.Reason, " ", end.ExitCode) != tc.want {
			t.Errorf("%s: state %+v, want %s", tc.name, st.ContainerStatuses[0].State, tc.want)
		}
		before := w.count("start container a")
		if w.settle(24 * time.Hour); w.count("start container a") != before {
			t.Errorf("%s: it was started again", tc.name)
		}
	}
}

func TestAnOrphanRunsThePreStopHookThatItWasMadeWith(t *testing.T) {
	s := State{UID: "u", Now: start, Observed: podstate.Observed{Known: true, Containers: []podstate.Container{
		{ID: "c", SandboxID: "s", Name: "c", State: podstate.StateRunning, GraceSeconds: 30, PreStop: &v1.LifecycleHandler{}},
	}}}
	if got := kinds(Plan(s).Actions); got[podstate.BeginStop] != 1 || got[podstate.KillContainer] != 0 {
		t.Fatalf("actions %v", got)
	}
	stop := asked(start, podstate.CauseEnd, 30)
	stop.PreStopDone = true
	s.Stops = map[string]ContainerStop{"c": stop}
	if got := kinds(Plan(s).Actions); got[podstate.BeginStop] != 0 || got[podstate.KillContainer] != 1 {
		t.Fatalf("after the hook: %v", got)
	}
}

func TestASandboxIsRemovedOnlyWhenItsStopHasReturned(t *testing.T) {
	s := State{UID: "u", Now: start, Cleaned: Cleaned{Volumes: true}, Observed: podstate.Observed{Known: true, Sandboxes: []podstate.Sandbox{{ID: "s"}}}}
	s.InFlight = map[podstate.Key]podstate.Action{{Kind: podstate.StopSandbox, Object: "s"}: {}}
	if out := Plan(s); len(out.Actions) != 0 {
		t.Errorf("begun while the sandbox's network is taken down: %+v", out.Actions)
	}
	s.InFlight, s.StoppedSandboxes = nil, map[string]bool{"s": true}
	if got := kinds(Plan(s).Actions); got[podstate.RemoveSandbox] != 1 || got[podstate.RemoveCgroup] != 1 {
		t.Errorf("afterwards: %v", got)
	}
}

func TestAPodHasStoppedWithItsLastProcess(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	s := crashing(pod)
	s.Pod = pod.DeepCopy()
	now := metav1.NewTime(s.Now)
	s.Pod.DeletionTimestamp = &now
	s.InFlight = map[podstate.Key]podstate.Action{{Kind: podstate.KillContainer, Object: "c0"}: {}}
	out := Plan(s)
	if !out.Stopped || out.Status.Phase != v1.PodFailed || kinds(out.Actions)[podstate.StopSandbox] != 1 {
		t.Errorf("with the stop's call still under way: stopped %v, phase %s, actions %v", out.Stopped, out.Status.Phase, out.Actions)
	}
	s.Removed, s.Observed.Sandboxes[0].Ready = true, false
	if got := kinds(Plan(s).Actions); got[podstate.RemoveContainer] != 0 {
		t.Errorf("the container is removed under its own stop: %v", got)
	}
}

func TestVolumesThatCouldNotBeTakenDownAreTriedAtOnceWhenTheirDriverComes(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	teardown := podstate.Key{Kind: podstate.TeardownVolumes}
	w.s.Failures[teardown] = Failure{Count: 8, At: w.s.Now, Message: "driver name d not found in the list of registered CSI drivers"}
	w.s.ObjectsChanged()
	if f := w.s.Failures[teardown]; !f.At.IsZero() || f.Count != 8 {
		t.Errorf("after the driver came the failure is %+v", f)
	}
}

// One of the pod's volumes may have missed the driver, and the server of another be waited
// for: when all have ended, nobody tells once more.
func TestADriverThatComesWhileVolumesAreTakenDownIsNotWaitedForAgain(t *testing.T) {
	for _, comes := range []bool{true, false} {
		w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
		w.settle(time.Minute)
		a := podstate.Action{Key: podstate.Key{Kind: podstate.TeardownVolumes}}
		w.s.Failures[a.Key] = Failure{Count: 8, At: w.s.Now.Add(-time.Hour), Message: "driver name d not found in the list of registered CSI drivers"}
		w.s.Launch(a)
		if comes {
			w.s.ObjectsChanged()
		}
		w.s.Now = w.s.Now.Add(time.Minute)
		for range 2 {
			w.s.Ended(Outcome{Action: a, Failure: &Failure{Message: "driver name d not found in the list of registered CSI drivers", At: w.s.Now}})
			f := w.s.Failures[a.Key]
			if at := f.At.Add(retryDelay(a.Kind, f)); at.After(w.s.Now) == comes {
				t.Errorf("it comes %v, and it is tried again after %s", comes, at.Sub(w.s.Now))
			}
			comes = false // it counts once
			w.s.Launch(a)
		}
	}
}

// Whoever made it takes the object's end for that of all that it had: of its address, its
// volumes and its cpus.
func TestAnObjectStaysAsLongAsAnythingOfItsPodIsLeft(t *testing.T) {
	for _, kind := range []podstate.Kind{podstate.KillContainer, podstate.StopSandbox, podstate.TeardownVolumes, podstate.RemoveCgroup} {
		w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
		w.settle(time.Minute)
		until := w.s.Now.Add(time.Hour)
		w.fail = func(a podstate.Action) *Failure {
			if a.Kind == kind && w.s.Now.Before(until) {
				return &Failure{Reason: "Failed", Message: "busy"}
			}
			return nil
		}
		deleteIn(w, 30)
		if w.settle(50 * time.Minute); w.count("delete object ") != 0 || w.out.Freed {
			t.Errorf("it cannot %s: freed %v, done: %q", kind, w.out.Freed, w.log)
		}
		if w.settle(2 * time.Hour); w.count("delete object ") != 1 {
			t.Errorf("then it can %s; done: %q", kind, w.log)
		}
	}
}

func TestVolumesAreNotTakenDownWhileTheyAreSetUp(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	key := podstate.Key{Kind: podstate.SetupVolumes}
	w.s.InFlight[key] = podstate.Action{Key: key, Volumes: []string{""}}
	deleteIn(w, 30)
	for range 5 {
		w.step()
	}
	if !slices.Contains(w.out.Cancel, key) || w.count("tear down volumes ") != 0 {
		t.Errorf("cut short: %v, done: %q", w.out.Cancel, w.log)
	}
	delete(w.s.InFlight, key)
	if w.settle(time.Minute); w.count("tear down volumes ") != 1 || w.count("delete object ") != 1 {
		t.Errorf("then: %q", w.log)
	}
}

func TestWhyAPodEndsAndThatItEndsNoMoreThanOnce(t *testing.T) {
	rejected := podstate.Admission{Decision: podstate.Rejected, Reason: "OutOfcpu", Message: "m"}
	for name, tc := range map[string]struct {
		set  func(s *State)
		want *end
	}{
		"nothing ends it":                       {func(*State) {}, nil},
		"it was told to have ended":             {func(s *State) { s.Reported.Phase, s.Reported.Reason = v1.PodFailed, "x" }, &end{phase: v1.PodFailed, reason: "x"}},
		"somebody else says so":                 {func(s *State) { s.Pod.Status.Phase, s.Pod.Status.Reason = v1.PodFailed, "x" }, &end{phase: v1.PodFailed, reason: "x"}},
		"it was rejected":                       {func(s *State) { s.Admission = rejected; s.Observed = podstate.Observed{Known: true} }, &end{phase: v1.PodFailed, reason: "OutOfcpu", message: "Pod was rejected: m", rejected: true}},
		"it was, and its container is there":    {func(s *State) { s.Admission = rejected; s.Observed.Sandboxes = nil }, nil},
		"it was, and its sandbox is there":      {func(s *State) { s.Admission = rejected; s.Observed.Containers = nil }, nil},
		"its source has removed it":             {func(s *State) { s.Removed = true }, &end{}},
		"nobody knows it, whatever it was once": {func(s *State) { s.Pod, s.Admission = nil, rejected }, &end{}},
	} {
		s := scene(testPod(v1.RestartPolicyAlways, "a"), "a running")
		tc.set(&s)
		p := newPlanner(&s)
		if got := p.ending(); (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestThatTheNodeEndsAPodIsKeptOnlyWhileThatCanMatter(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(s *State)
		want bool
	}{
		"it is to be kept":       {func(*State) {}, true},
		"it is kept":             {func(s *State) { s.StopUnkept = false }, false},
		"the node does not":      {func(s *State) { s.Stop = nil }, false},
		"nobody knows the pod":   {func(s *State) { s.Pod = nil }, false},
		"it was told of already": {func(s *State) { s.Reported.Phase = v1.PodFailed }, false},
	} {
		s := scene(testPod(v1.RestartPolicyAlways, "a"), "a running")
		s.TakeStop(podstate.Stop{Reason: "Evicted"}, false, s.Now)
		tc.set(&s)
		p := planner{s: &s}
		if waits := p.keepStop(); waits != tc.want || (len(p.out.Actions) == 1) != tc.want {
			t.Errorf("%s: waits %v, %+v", name, waits, p.out.Actions)
		}
	}
}

// Nothing of a pod that is gone is forgotten while something of it is there.
func TestTheDirectoriesOfAPodThatIsGoneGoLast(t *testing.T) {
	key := podstate.Key{Kind: podstate.RemoveContainer, Object: "c"}
	stuck := func(s *State) {
		s.Failures[key] = Failure{Count: triesToRemove}
		s.Returns, s.Cleaned.Directories = true, false
		s.Observed.Containers = []podstate.Container{{ID: "c", State: podstate.StateExited}}
	}
	for name, tc := range map[string]struct {
		set         func(s *State)
		up          bool
		directories bool
		done        bool
	}{
		"nothing is left":                               {set: func(*State) {}, directories: true},
		"its sandboxes are not down":                    {set: func(*State) {}, up: true},
		"a container is there":                          {set: func(s *State) { s.Observed.Containers = []podstate.Container{{ID: "c"}} }},
		"a sandbox is there":                            {set: func(s *State) { s.Observed.Sandboxes = []podstate.Sandbox{{ID: "s"}} }},
		"its volumes are there":                         {set: func(s *State) { s.Cleaned.Volumes = false }},
		"its cgroup is there":                           {set: func(s *State) { s.Cleaned.Cgroup = false }},
		"they are gone":                                 {set: func(s *State) { s.Cleaned.Directories = true }, done: true},
		"they are gone, and something goes on":          {set: func(s *State) { s.Cleaned.Directories = true; s.InFlight[key] = podstate.Action{Key: key} }},
		"it returns, and the runtime keeps a container": {set: stuck, done: true},
		"that, and something goes on":                   {set: func(s *State) { stuck(s); s.InFlight[key] = podstate.Action{Key: key} }},
		"that, and the runtime is away":                 {set: func(s *State) { stuck(s); s.Failures[key] = Failure{Count: triesToRemove, Away: true} }},
		"that, for a moment":                            {set: func(s *State) { stuck(s); s.Failures[key] = Failure{Count: triesToRemove - 1} }},
		"that, and it does not return":                  {set: func(s *State) { stuck(s); s.Returns = false }},
		"that, and its volumes are there":               {set: func(s *State) { stuck(s); s.Cleaned.Volumes = false }},
	} {
		s := NewState("u")
		s.Now, s.Cleaned = start, Cleaned{Volumes: true, Cgroup: true}
		tc.set(&s)
		p := newPlanner(&s)
		p.out.Freed = s.Cleaned.Volumes && s.Cleaned.Cgroup
		p.removeAll(!tc.up)
		if got := kinds(p.out.Actions)[podstate.RemoveDirectories] == 1; got != tc.directories || p.out.Done != tc.done {
			t.Errorf("%s: %+v, done %v", name, p.out.Actions, p.out.Done)
		}
	}
}

func TestWhatAPodThatEndsHasIsTakenFromItWhenItsSandboxesAreDown(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(s *State)
		want []podstate.Kind
	}{
		"its sandbox is up":              {func(*State) {}, []podstate.Kind{podstate.StopSandbox}},
		"it is up, and all else is gone": {func(s *State) { s.Cleaned = Cleaned{Volumes: true, Cgroup: true} }, []podstate.Kind{podstate.StopSandbox}},
		"the node needs room, and its cgroup is there": {func(s *State) {
			s.Pod.DeletionTimestamp, s.Reclaim, s.Reported.Phase, s.Pod.Status.Phase = nil, true, v1.PodFailed, v1.PodFailed
			s.Observed.Sandboxes, s.Cleaned = nil, Cleaned{Volumes: true}
			s.Observed.Containers = []podstate.Container{{ID: "c", Name: "a", State: podstate.StateExited}}
		}, []podstate.Kind{podstate.RemoveCgroup}},
		"it is down": {func(s *State) { s.Observed.Sandboxes[0].Ready = false; s.StoppedSandboxes["s"] = true }, []podstate.Kind{podstate.TeardownVolumes, podstate.RemoveCgroup}},
		"it has nothing more, and its object goes": {func(s *State) {
			s.Observed.Sandboxes, s.Cleaned = nil, Cleaned{Volumes: true, Cgroup: true}
		}, []podstate.Kind{podstate.DeleteObject}},
		"a static pod's object is a mirror": {func(s *State) {
			s.Observed.Sandboxes, s.Cleaned, s.Static = nil, Cleaned{Volumes: true, Cgroup: true}, true
		}, nil},
		"its cgroup is there": {func(s *State) { s.Observed.Sandboxes, s.Cleaned = nil, Cleaned{Volumes: true} }, []podstate.Kind{podstate.RemoveCgroup}},
	} {
		s := scene(testPod(v1.RestartPolicyAlways, "a"))
		s.Pod.DeletionTimestamp = &metav1.Time{Time: start}
		tc.set(&s)
		p := newPlanner(&s)
		p.end = &end{}
		p.stop()
		var got []podstate.Kind
		for _, a := range p.out.Actions {
			got = append(got, a.Kind)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestOnlyAPodThatTheNodeEndsIsOverdue(t *testing.T) {
	for name, tc := range map[string]struct {
		stop    bool
		since   time.Duration
		periods []Period
		want    bool
	}{
		"one and a half of its 30 s are over":   {true, 45 * time.Second, nil, true},
		"they are not":                          {true, 44 * time.Second, nil, false},
		"it is deleted":                         {false, time.Hour, nil, false},
		"nothing has begun":                     {true, 0, nil, false},
		"the node gave it less just now":        {true, time.Hour, []Period{{start.Add(-9 * time.Second), 1}}, false},
		"the node gave it less before it began": {true, 9 * time.Second, []Period{{start.Add(-time.Hour), 1}}, false},
	} {
		s := scene(testPod(v1.RestartPolicyAlways, "a"), "a running")
		if tc.stop {
			s.Stop = &podstate.Stop{Reason: "Evicted"}
		}
		if s.StopPeriods = tc.periods; tc.since > 0 {
			s.EndSince = s.Now.Add(-tc.since)
		}
		p := newPlanner(&s)
		if p.overdue(); p.out.Overdue != tc.want {
			t.Errorf("%s: %v", name, p.out.Overdue)
		}
	}
}
