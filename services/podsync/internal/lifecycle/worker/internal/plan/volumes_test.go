package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func failsToMount(a podstate.Action) *Failure {
	if a.Kind == podstate.SetupVolumes {
		return &Failure{Reason: "FailedMount", Message: `MountVolume.SetUp failed for volume "cm" : configmap "x" not found`}
	}
	return nil
}

// Source: test/e2e_node/pod_conditions_test.go.
func TestContainersAreReadyToStartOnceVolumesAndSandboxAre(t *testing.T) {
	ready := func(w *world) v1.ConditionStatus { return condition(w.out.Status, v1.PodReadyToStartContainers) }
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.fail = failsToMount
	w.settle(time.Hour)
	if ready(w) != v1.ConditionFalse || len(w.s.Observed.Sandboxes) != 1 {
		t.Errorf("without volumes: %s", ready(w))
	}
	w.fail = nil
	if w.settle(time.Hour); ready(w) != v1.ConditionTrue {
		t.Errorf("with volumes: %s", ready(w))
	}
	w.fail = failsToMount
	w.s.Volumes.Version++
	if w.settle(time.Minute); ready(w) != v1.ConditionTrue {
		t.Errorf("when they cannot be set up for a new version of the pod: %s", ready(w))
	}
	w.s.Volumes = Volumes{}
	if w.settle(time.Minute); ready(w) != v1.ConditionTrue {
		t.Errorf("when they cannot be set up in a new life of the process: %s", ready(w))
	}
	w.s.Observed.Sandboxes[0].Ready = false
	if w.step(); ready(w) != v1.ConditionFalse {
		t.Errorf("without a sandbox: %s", ready(w))
	}
}

func TestAFormerLifesWordThatVolumesWereReadyStands(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.fail = func(a podstate.Action) *Failure {
		if a.Kind == podstate.PullImage {
			return &Failure{Reason: "ErrImagePull", Message: "no such image"}
		}
		return nil
	}
	w.settle(time.Minute)
	w.s.Volumes = Volumes{}
	w.fail = failsToMount
	if w.step(); condition(w.out.Status, v1.PodReadyToStartContainers) != v1.ConditionTrue {
		t.Errorf("status %+v", w.out.Status.Conditions)
	}
}

func TestVolumesAreSetUpForTheNewestVersionAndStartsWaitForAny(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	pod.Spec.Volumes = []v1.Volume{{Name: "v"}}
	for _, tc := range []struct {
		name    string
		volumes Volumes
		// set: they are set up; starts: a container does.
		set, starts bool
	}{
		{"of a previous run", Volumes{}, true, false},
		{"all current", Volumes{Version: 2, Of: map[string]Volume{"": {SetUp: true, Version: 2}, "v": {SetUp: true, Version: 2}}}, false, true},
		{"the pod has changed", Volumes{Version: 3, Of: map[string]Volume{"": {SetUp: true, Version: 2}, "v": {SetUp: true, Version: 2}}}, true, true},
		{"one shows an earlier version", Volumes{Version: 2, Of: map[string]Volume{"": {SetUp: true, Version: 2}, "v": {SetUp: true, Version: 1}}}, true, true},
		{"one is missing", Volumes{Version: 2, Of: map[string]Volume{"": {SetUp: true, Version: 2}}}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(pod.DeepCopy())
			w.settle(time.Minute)
			w.s.Volumes = tc.volumes
			got := Plan(w.s).Actions
			if set := len(got) == 1 && got[0].Kind == podstate.SetupVolumes && got[0].Version == tc.volumes.Version; set != tc.set || !set && len(got) > 0 {
				t.Errorf("while it runs: %+v", got)
			}
			w.end(w.newest("a"), 1)
			w.s.Images["a"] = Image{Spec: "img", Ref: "sha256:1", RestartCount: 1}
			got = Plan(w.s).Actions
			if starts, set := kinds(got)[podstate.StartContainer] == 1, kinds(got)[podstate.SetupVolumes] == 1; starts != tc.starts || set != tc.set {
				t.Errorf("when its container is to start again: %+v", got)
			}
		})
	}
}

// Source: the kubelet's volumes that are mounted stay so for it, whether or not
// they can be mounted anew for a pod that has changed.
func TestAContainerStartsAgainThoughVolumesCannotBeSetUpForTheNewestVersion(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	pod.Spec.Volumes = []v1.Volume{{Name: "v"}}
	w := newWorld(pod)
	w.settle(time.Minute)
	w.fail = failsToMount // the ConfigMap was deleted
	w.s.Volumes.Version++ // and a label of the pod has changed
	w.end(w.newest("a"), 1)
	if w.settle(time.Minute); w.newest("a").State != podstate.StateRunning || w.newest("a").RestartCount != 1 {
		t.Errorf("container %+v", w.newest("a"))
	}
	w.fail = nil
	if w.settle(time.Hour); !w.s.Volumes.current(pod) {
		t.Errorf("volumes %+v", w.s.Volumes)
	}
}

func TestTheConditionOfReadyToStartContainersHasItsGate(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Hour)
	if got := condition(w.out.Status, v1.PodReadyToStartContainers); got != v1.ConditionTrue {
		t.Fatalf("with the gate: %s", got)
	}
	w.s.Pod.Status = w.out.Status // the apiserver has it
	w.s.Node.NoReadyToStart = true
	w.step()
	for _, c := range w.out.Status.Conditions {
		if c.Type == v1.PodReadyToStartContainers {
			t.Errorf("without the gate: %+v", c)
		}
	}
	if got := condition(w.out.Status, v1.PodReady); got == "" {
		t.Error("the others went, too")
	}
}

func TestADebugContainerStartsWhenTheVolumesAreSetUpForItOrCannotBe(t *testing.T) {
	for name, fail := range map[string]func(podstate.Action) *Failure{"set up": nil, "cannot be set up": failsToMount} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(v1.RestartPolicyAlways, "a")
			w := newWorld(pod)
			w.settle(time.Minute)
			changed := pod.DeepCopy()
			changed.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", Image: "img"}}}
			w.s.Pod, w.fail, w.log = changed, fail, nil
			w.s.Volumes.Version++
			w.s.Images["e"] = Image{Spec: "img", Ref: "sha256:1"}
			if w.step(); len(w.log) != 1 || w.log[0] != "set up volumes " {
				t.Errorf("first: %q", w.log)
			}
			if w.settle(time.Minute); w.newest("e") == nil {
				t.Errorf("it never starts: %q", w.log)
			}
		})
	}
}

func TestEachVolumeHasABackOffOfItsOwn(t *testing.T) {
	w := newWorld(withVolumes("good", "bad", "worse"))
	fails := map[string]bool{"bad": true, "worse": true}
	var tries [][]string
	w.volumes = func(a podstate.Action) map[string]Failure {
		tries = append(tries, a.Volumes)
		out := map[string]Failure{}
		for _, name := range a.Volumes {
			if fails[name] {
				out[name] = Failure{Reason: "FailedMount", Message: name + " not found", At: w.s.Now}
			}
		}
		return out
	}
	w.settle(time.Second)
	delete(fails, "bad")
	w.settle(time.Minute)
	began := len(tries)
	if got := w.s.Volumes.Of; !got["good"].SetUp || !got["bad"].SetUp || got["bad"].Failure.Count != 0 || got["worse"].SetUp || got["worse"].Failure.Count < 3 {
		t.Fatalf("%+v", got)
	}
	if !slices.Equal(tries[0], []string{"", "good", "bad", "worse"}) || !slices.Equal(tries[1], []string{"", "bad", "worse"}) || !slices.Equal(tries[began-1], []string{"", "worse"}) {
		t.Errorf("tried %q", tries)
	}
	// Another one that fails later begins with a short wait, while the first has a long one.
	w.s.Volumes.Version++
	fails["bad"] = true
	w.step()
	if bad, worse := w.s.Volumes.Of["bad"], w.s.Volumes.Of["worse"]; bad.Failure.Count != 1 || !bad.SetUp || !bad.nextTry().Before(worse.nextTry()) {
		t.Errorf("bad %+v, worse %+v", bad, worse)
	}
	w.s.Volumes.TryAgain()
	if got := Plan(w.s).Actions; len(got) != 1 || !slices.Equal(got[0].Volumes, []string{"", "bad", "worse"}) {
		t.Errorf("when an object has changed: %+v", got)
	}
	w.s.Volumes.ForgetFailures()
	if w.s.Volumes.fails() {
		t.Errorf("%+v", w.s.Volumes.Of)
	}
}

func TestOfThousandsOfVolumesThatFailAFewAreNamed(t *testing.T) {
	var names []string
	failed := map[string]Failure{}
	for i := range 1000 {
		name := fmt.Sprint("v", i)
		names, failed[name] = append(names, name), Failure{Reason: "FailedMount", Message: "not found"}
	}
	w := newWorld(withVolumes(names...))
	for name, f := range failed {
		f.At = w.s.Now
		failed[name] = f
	}
	if !w.s.Volumes.Ended(w.s.Pod, podstate.Action{Volumes: append([]string{""}, names...)}, failed, nil) {
		t.Error("that they fail is no news")
	}
	if w.s.Volumes.Ended(w.s.Pod, podstate.Action{Volumes: names}, failed, nil) {
		t.Error("that they fail once more is news")
	}
	var waits []podstate.Wait
	for _, wait := range Plan(w.s).Waits {
		if wait.Kind == "volume" {
			waits = append(waits, wait)
		}
	}
	if len(waits) != 11 || waits[0].Object != "v0" || waits[10].Reason != "990 more volumes cannot be set up" {
		t.Errorf("%d waits: %+v", len(waits), waits)
	}
}

// Source: podsync may be killed at any time, and no pod notices.
func TestAContainerStartsAgainWithTheVolumesOfAPreviousRunThatCannotBeMadeAnew(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	pod.Spec.Volumes = []v1.Volume{{Name: "v"}, {Name: "w"}}
	for _, tc := range []struct {
		name     string
		standing []string
		reboot   bool
		want     bool
	}{
		{"all stand", []string{"v", "w"}, false, true},
		{"one does not", []string{"v"}, false, false},
		{"nothing is known of them", nil, false, false},
		{"all stand, for a new sandbox", []string{"v", "w"}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(pod.DeepCopy())
			w.settle(time.Minute)
			w.s.Volumes = Volumes{}
			w.standing = tc.standing
			w.volumes = func(a podstate.Action) map[string]Failure {
				out := map[string]Failure{}
				for _, name := range a.Volumes[1:] {
					out[name] = Failure{Reason: "FailedMount", Message: name + " not found", At: w.s.Now}
				}
				return out
			}
			if tc.reboot {
				w.s.Observed.Sandboxes[0].Ready = false
			}
			w.end(w.newest("a"), 1)
			w.settle(time.Minute)
			if c := w.newest("a"); (c.RestartCount == 1) != tc.want {
				t.Errorf("container %+v, log %v", c, w.log)
			}
			if tc.want && w.s.Volumes.current(w.s.Pod) {
				t.Error("nobody tries to set them up any more")
			}
		})
	}
}

// TestAnObjectThatChangesWhileVolumesAreSetUpIsNotWaitedForAgain: what was read before
// the change fails after it, and nothing more would tell.
func TestAnObjectThatChangesWhileVolumesAreSetUpIsNotWaitedForAgain(t *testing.T) {
	w := newWorld(withVolumes("claim"))
	end := func(changes bool) Volume {
		a := podstate.Action{Key: podstate.Key{Kind: podstate.SetupVolumes}, Volumes: []string{"", "claim"}}
		w.s.Launch(a)
		if changes {
			w.s.ObjectsChanged()
		}
		f := Failure{Message: "PVC is not bound", At: w.s.Now}
		w.s.Ended(Outcome{Action: a, Failure: &f, Volumes: map[string]Failure{"claim": f}})
		return w.s.Volumes.Of["claim"]
	}
	if v := end(true); v.nextTry().After(w.s.Now) {
		t.Errorf("tried again after %s, though the claim was bound meanwhile", v.nextTry().Sub(w.s.Now))
	}
	if v := end(false); !v.nextTry().After(w.s.Now) {
		t.Error("tried again at once, though nothing changed")
	}
}

// Each field that a volume may show counts, and no other.
func TestAVolumeIsMadeAnewForWhatItMayShowOfAPod(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *v1.Pod)
		want   int
	}{
		"nothing":                           {func(*v1.Pod) {}, 0},
		"a label":                           {func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }, 1},
		"an annotation":                     {func(p *v1.Pod) { p.Annotations = map[string]string{"a": "b"} }, 1},
		"the pod's resources":               {func(p *v1.Pod) { p.Spec.Resources = ptr(amounts("cpu", "1")) }, 1},
		"a container's resources":           {func(p *v1.Pod) { p.Spec.Containers[0].Resources = amounts("cpu", "1") }, 1},
		"an init container's resources":     {func(p *v1.Pod) { p.Spec.InitContainers[0].Resources = amounts("cpu", "1") }, 1},
		"a debug container":                 {func(p *v1.Pod) { p.Spec.EphemeralContainers = []v1.EphemeralContainer{{}} }, 1},
		"a container":                       {func(p *v1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }, 1},
		"an init container":                 {func(p *v1.Pod) { p.Spec.InitContainers = nil }, 1},
		"an image, which no volume shows":   {func(p *v1.Pod) { p.Spec.Containers[0].Image = "other" }, 0},
		"its status, which no volume shows": {func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }, 0},
	} {
		old := withInit(testPod(v1.RestartPolicyAlways, "a", "b"), "i")
		now := old.DeepCopy()
		tc.change(now)
		var v Volumes
		v.changed(old, now)
		if v.changed(nil, now); v.Version != tc.want {
			t.Errorf("%s: version %d, want %d", name, v.Version, tc.want)
		}
		if v.changed(old, nil); v.Version != tc.want {
			t.Errorf("%s, and the pod is gone: version %d, want %d", name, v.Version, tc.want)
		}
	}
}
