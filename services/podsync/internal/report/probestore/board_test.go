package probestore

import (
	"strings"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func probedPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name:  "c",
			Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 8080}},
			Env:   []v1.EnvVar{{Name: "FILE", Value: "/ok"}, {Name: "FROM", ValueFrom: &v1.EnvVarSource{}}},
			LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{
				Command: []string{"cat", "$(FILE)", "$(OTHER)", "-$(FROM)"},
			}}},
			ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("web")}}},
		}}},
	}
}

var (
	live  = podstate.ProbeKey{Container: "c", Type: podstate.Liveness}
	ready = podstate.ProbeKey{Container: "c", Type: podstate.Readiness}
)

type told struct {
	results []podstate.ProbeResult
	events  []string
}

func newBoard() (*Board, *told) {
	t := &told{}
	return NewBoard(Deps{Epoch: 1, Events: t, Results: t}), t
}

func (t *told) Container(pod *v1.Pod, container, eventType, reason, message string) {
	t.events = append(t.events, pod.Name+" "+container+" "+eventType+" "+reason+" "+message)
}

func (t *told) ProbeResult(_ types.UID, _ podstate.ProbeKey, r podstate.ProbeResult) {
	t.results = append(t.results, r)
}

func targets(id string) []podstate.Target {
	return []podstate.Target{{ProbeKey: live, ContainerID: id}, {ProbeKey: ready, ContainerID: id}, {ProbeKey: podstate.ProbeKey{Container: "c", Type: podstate.Startup}, ContainerID: id}}
}

func TestTargetsAreResolvedFromTheSpec(t *testing.T) {
	b, _ := newBoard()
	b.Set(probedPod(), targets("1"))
	frame, err := b.Subscribe(t.Context()).Next(t.Context())
	if err != nil || len(frame.Changed) != 2 {
		t.Fatalf("frame %+v, error %v; a probe that the spec does not have is no target", frame, err)
	}
	exec := frame.Changed[Key{"u", live}].Probe.Exec.Command
	if exec[1] != "/ok" || exec[2] != "$(OTHER)" || exec[3] != "-" {
		t.Errorf("command %v", exec)
	}
	web := frame.Changed[Key{"u", ready}]
	if web.Probe.HTTPGet.Port.IntValue() != 8080 || web.PortName != "web" {
		t.Errorf("port %v name %q", web.Probe.HTTPGet.Port, web.PortName)
	}
}

func TestNoPodTakesAllThatProbesMayHave(t *testing.T) {
	b, _ := newBoard()
	pod := probedPod()
	c := &pod.Spec.Containers[0]
	long := strings.Repeat("x", 500<<10)
	c.Env = []v1.EnvVar{{Name: "A", Value: long}}
	c.LivenessProbe.Exec.Command = []string{"/ok", "$(A)"}
	c.ReadinessProbe.HTTPGet.HTTPHeaders = []v1.HTTPHeader{{Name: "X", Value: long}}
	c.StartupProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(1)}}}
	bomb := c.DeepCopy()
	bomb.Name, bomb.LivenessProbe.Exec.Command = "d", []string{strings.Repeat("$(A)", 100_000)}
	pod.Spec.Containers = append(pod.Spec.Containers, *bomb)
	bombed := podstate.ProbeKey{Container: "d", Type: podstate.Liveness}
	b.Set(pod, append(targets("1"), podstate.Target{ProbeKey: bombed, ContainerID: "2"}))
	frame, err := b.Subscribe(t.Context()).Next(t.Context())
	if err != nil || len(frame.Changed) != 4 {
		t.Fatalf("%d targets, %v", len(frame.Changed), err)
	}
	for key, target := range frame.Changed {
		if n := target.Probe.Size(); n > 10<<10 {
			t.Errorf("%v takes %d bytes", key, n)
		}
	}
	if frame.Changed[Key{"u", live}].Probe.Exec == nil || frame.Changed[Key{"u", ready}].Probe.HTTPGet != nil ||
		frame.Changed[Key{"u", podstate.ProbeKey{Container: "c", Type: podstate.Startup}}].Probe.TCPSocket == nil {
		t.Error("what is left out is not what is too large")
	}
	if whole, _ := b.Target(Key{"u", live}); len(whole.Probe.Exec.Command) != 2 || len(whole.Probe.Exec.Command[1]) != 500<<10 {
		t.Error("the command that is run is not the spec's")
	}
	if none, _ := b.Target(Key{"u", bombed}); len(none.Probe.Exec.Command) > 0 {
		t.Error("a command that nobody can start is run")
	}
}

func TestOnlyWhatChangedIsSentAgain(t *testing.T) {
	b, _ := newBoard()
	pod := probedPod()
	b.Set(pod, targets("1"))
	sub := b.Subscribe(t.Context())
	if _, err := sub.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Set(pod.DeepCopy(), targets("1"))
	second := targets("1")
	second[1].Started = true
	b.Set(pod, second)
	frame, err := sub.Next(t.Context())
	if err != nil || len(frame.Changed) != 1 || !frame.Changed[Key{"u", ready}].Started {
		t.Fatalf("frame %+v, error %v", frame, err)
	}
	b.Remove("u")
	if frame, err = sub.Next(t.Context()); err != nil || len(frame.Removed) != 2 {
		t.Fatalf("frame %+v, error %v", frame, err)
	}
}

func TestAResultCountsForItsContainerOnly(t *testing.T) {
	b, told := newBoard()
	b.Set(probedPod(), targets("1"))
	result := func(id string, ok bool) Result {
		return Result{Key: Key{"u", ready}, Known: true, ProbeResult: podstate.ProbeResult{ContainerID: id, Success: ok}}
	}
	b.Report([]Result{result("1", true), result("1", true), result("old", false), {Key: Key{"u", ready}}}, nil)
	if len(told.results) != 1 || !told.results[0].Success {
		t.Fatalf("told %+v", told.results)
	}
	b.Set(probedPod(), targets("1"))
	if r := b.Results("u"); !r[ready].Success {
		t.Fatalf("the result is lost: %v", r)
	}
	b.Set(probedPod(), targets("2"))
	if r := b.Results("u"); len(r) != 0 {
		t.Fatalf("another container inherits %v", r)
	}
	b.Report([]Result{result("1", false)}, nil)
	if len(told.results) != 1 {
		t.Fatalf("a late result was told: %+v", told.results)
	}
}

func TestEventsGoToThePod(t *testing.T) {
	b, told := newBoard()
	b.Set(probedPod(), targets("1"))
	b.Report(nil, []Event{{Key: Key{"u", live}, Reason: "Unhealthy", Message: "Liveness probe failed: x"}, {Key: Key{"gone", live}}})
	if len(told.events) != 1 || told.events[0] != "p c Warning Unhealthy Liveness probe failed: x" {
		t.Fatalf("events %v", told.events)
	}
}

func TestWhatTheProbesProcessSaysIsCut(t *testing.T) {
	b, told := newBoard()
	b.Set(probedPod(), targets("1"))
	long := strings.Repeat("ü", 2<<20)
	b.Report(
		[]Result{{Key: Key{"u", live}, ProbeResult: podstate.ProbeResult{ContainerID: "1", Message: long}, Known: true}},
		[]Event{
			{Key{"u", live}, "Unhealthy", long},
			{Key{"u", live}, long, "x"},
			{Key{"u", podstate.ProbeKey{Container: long, Type: podstate.Liveness}}, "Unhealthy", "x"},
		},
	)
	result, _ := b.Result(Key{"u", live})
	if n := len(result.Message); n == 0 || n > mostMessage || !utf8.ValidString(result.Message) || len(told.results) != 1 || told.results[0] != result {
		t.Errorf("a result's message has %d bytes", n)
	}
	for _, e := range told.events {
		if len(e) > mostMessage+mostReason || !utf8.ValidString(e) {
			t.Errorf("an event has %d bytes", len(e))
		}
	}
	if len(told.events) != 2 {
		t.Errorf("%d events; one of a container that the pod does not have is none", len(told.events))
	}
}

func TestACountIsKeptForTheProbesProcessUntilTheContainerChanges(t *testing.T) {
	b, told := newBoard()
	b.Set(probedPod(), targets("1"))
	counted := func(id string, known bool, failures int32) Result {
		return Result{Key: Key{"u", ready}, Known: known, ProbeResult: podstate.ProbeResult{ContainerID: id, Success: true}, Count: Count{Failures: failures}}
	}
	for _, step := range []struct {
		report Result
		want   int32
	}{
		{counted("1", false, 1), 1}, {counted("1", true, 0), 0}, {counted("1", true, 2), 2}, {counted("old", true, 1), 2},
	} {
		b.Report([]Result{step.report}, nil)
		if got := b.Count(Key{"u", ready}).Failures; got != step.want {
			t.Errorf("after %+v: %d failures, want %d", step.report, got, step.want)
		}
	}
	if len(told.results) != 1 {
		t.Errorf("counts alone were told to the worker: %+v", told.results)
	}
	b.Set(probedPod(), targets("2"))
	if got := b.Count(Key{"u", ready}); got != (Count{}) {
		t.Errorf("another container inherits %+v", got)
	}
}
