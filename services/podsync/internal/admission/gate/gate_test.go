package gate

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
	"github.com/polylet/polylet/services/podsync/internal/runtime/observe"
)

// world is a node and a runtime.
type world struct {
	object   *v1.Node
	outdated bool
	read     int
	down     bool
}

func (w *world) Object() *v1.Node             { return w.object }
func (w *world) Outdated(time.Time) bool      { return w.outdated }
func (w *world) ReadSoon()                    { w.read++ }
func (w *world) ShuttingDown() bool           { return w.down }
func (w *world) Runtime() observe.Runtime     { return observe.Runtime{} }
func (w *world) Allocatable() v1.ResourceList { return room() }

func cpu(n string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(n)} }

// room is a processor and place for ten pods.
func room() v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourcePods: resource.MustParse("10")}
}

func node(labels map[string]string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}, Status: v1.NodeStatus{Allocatable: room(), Capacity: room()}}
}

func pod(want string, selector map[string]string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}, Spec: v1.PodSpec{
		NodeName: "n", NodeSelector: selector,
		Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: cpu(want)}}},
	}}
}

func TestAPodIsJudgedByTheNodeThatThereIs(t *testing.T) {
	fast := map[string]string{"disk": "fast"}
	for name, c := range map[string]struct {
		cfg      Config
		world    world
		question Question
		want     podstate.Decision
		read     int
	}{
		"it fits":                         {Config{}, world{object: node(fast)}, Question{Pod: pod("1", fast)}, podstate.Admitted, 0},
		"it does not match":               {Config{}, world{object: node(nil)}, Question{Pod: pod("1", fast)}, podstate.Rejected, 0},
		"what it does not match is old":   {Config{}, world{object: node(nil), outdated: true}, Question{Pod: pod("1", fast)}, podstate.AdmissionPending, 1},
		"there is no node yet":            {Config{}, world{}, Question{Pod: pod("1", nil)}, podstate.AdmissionPending, 0},
		"a static pod waits for none":     {Config{}, world{}, Question{Pod: pod("1", nil), Static: true}, podstate.Admitted, 0},
		"nor does one of a node alone":    {Config{Standalone: true}, world{}, Question{Pod: pod("1", nil)}, podstate.Admitted, 0},
		"whose machine has not enough":    {Config{Standalone: true}, world{}, Question{Pod: pod("2", nil)}, podstate.Rejected, 0},
		"after its deadline none is read": {Config{Deadline: time.Minute}, world{}, Question{Pod: pod("1", nil), Waited: time.Hour}, podstate.Rejected, 0},
	} {
		w := c.world
		if got := New(c.cfg, &w, &w).Admit(c.question); got.Decision != c.want || w.read != c.read {
			t.Errorf("%s: %+v, read %d times", name, got.Admission, w.read)
		}
	}
}

func TestAResizeIsInfeasibleByTheConfigurationAndDeferredByTheNode(t *testing.T) {
	w := &world{object: node(nil)}
	ask := func(cfg Config, want string, static bool) string {
		if p := New(cfg, w, w).Resize(Resize{Pod: pod(want, nil), Allocated: pod("0.5", nil), Static: static}); p != nil {
			return p.Reason
		}
		return ""
	}
	for name, c := range map[string]struct{ got, want string }{
		"there is room":         {ask(Config{}, "1", false), ""},
		"there is none":         {ask(Config{}, "2", false), v1.PodReasonDeferred},
		"of a static pod":       {ask(Config{}, "1", true), v1.PodReasonInfeasible},
		"with the policy alone": {ask(Config{Resize: resize.Policies{StaticCPU: true}}, "1", false), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
}

func TestWhatTheNodeIsShortOfIsSaidBeforeItsObjectSaysIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{object: node(nil)}
		g := New(Config{}, w, w)
		ask := func() podstate.Decision { return g.Admit(Question{Pod: pod("1", nil)}).Decision }
		resize := func() bool {
			return g.Resize(Resize{Pod: pod("0.9", nil), Allocated: pod("0.5", nil)}) == nil
		}
		if ask() != podstate.Admitted || !resize() {
			t.Fatal("it is short of nothing")
		}
		if !g.Pressure().Said.IsZero() {
			t.Error("nobody has said anything")
		}
		g.SetPressure([]v1.NodeConditionType{v1.NodeDiskPressure}, time.Minute)
		time.Sleep(59 * time.Second)
		if ask() != podstate.Rejected || resize() {
			t.Error("it is said that the disk is full")
		}
		time.Sleep(time.Second)
		if ask() != podstate.Admitted {
			t.Error("that was said a minute ago")
		}
		if said := g.Pressure(); len(said.Conditions) != 1 || time.Since(said.Said) != time.Minute {
			t.Errorf("what was said is kept for who said it: %+v", said)
		}
		w.object.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}}
		if ask() != podstate.Rejected {
			t.Error("the Node says so")
		}
		if g.SetPressure(nil, time.Minute); ask() != podstate.Admitted {
			t.Error("it is said that there is room again")
		}
	})
}

func TestWhatTheNodeIsShortOfHasTheTimeSinceWhichItsObjectSaysIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		g := New(Config{}, w, w)
		if got := g.Short(); got != nil {
			t.Errorf("nobody has said anything: %v", got)
		}
		g.SetPressure([]v1.NodeConditionType{v1.NodeDiskPressure, v1.NodeMemoryPressure}, time.Minute)
		if got := g.Short(); len(got) != 2 {
			t.Errorf("without an object: %v", got)
		}
		since := time.Now().Add(-time.Hour)
		w.object = node(nil)
		w.object.Status.Conditions = []v1.NodeCondition{
			{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, LastTransitionTime: metav1.NewTime(since)},
			{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)},
			{Type: v1.NodePIDPressure, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)},
		}
		got := g.Short()
		if at, is := got[v1.NodeDiskPressure]; !is || !at.IsZero() || !got[v1.NodeMemoryPressure].Equal(since) || len(got) != 2 {
			t.Errorf("what was said counts, and since when the Node says it: %v", got)
		}
		time.Sleep(time.Minute)
		if got := g.Short(); len(got) != 2 || !got[v1.NodePIDPressure].Equal(since) {
			t.Errorf("a minute later the Node counts: %v", got)
		}
		w.object.Status.Conditions = nil
		if got := g.Short(); got == nil || len(got) != 0 {
			t.Errorf("a Node that is short of nothing: %v", got)
		}
	})
}

func TestWhatWasSaidOfTheMachinesEndCountsMoreThanTheNode(t *testing.T) {
	w := &world{object: node(nil), down: true}
	g := New(Config{}, w, w)
	for _, step := range []struct {
		say  *bool
		want podstate.Decision
	}{{nil, podstate.Rejected}, {new(bool), podstate.Admitted}, {&w.down, podstate.Rejected}} {
		if step.say != nil {
			g.SetShutdown(*step.say)
		}
		if got := g.Admit(Question{Pod: pod("1", nil)}); got.Decision != step.want || got.Decision == podstate.Rejected && got.Reason != "NodeShutdown" {
			t.Errorf("%+v; want %v", got.Admission, step.want)
		}
	}
}

func TestAPodOfADevicePluginThatNobodyServesIsRejected(t *testing.T) {
	w := &world{object: node(nil)}
	p := pod("1", nil)
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	gone := []v1.ResourceName{"example.com/gpu"}
	g := New(Config{GoneDevices: func() []v1.ResourceName { return gone }}, w, w)
	if got := g.Admit(Question{Pod: p}); got.Decision != podstate.Rejected || got.Reason != "UnexpectedAdmissionError" {
		t.Errorf("%+v", got.Admission)
	}
	if gone = nil; g.Admit(Question{Pod: p}).Decision != podstate.Admitted {
		t.Error("it is rejected though the plugin is not gone any more")
	}
}
