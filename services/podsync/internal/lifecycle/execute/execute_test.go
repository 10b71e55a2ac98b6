package execute

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/hook"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image"
	"github.com/polylet/polylet/services/podsync/internal/runtime/limiter"
)

// host stands in for everything that an Executor calls, and keeps a log of it.
type host struct {
	log      []string
	now      podstate.Observed
	fail     map[string][]error // by call, used up one by one
	stopTook time.Duration
	hook     func(context.Context) error
	hooks    map[string][]podstate.Hook
	memory   uint64
	target   string        // of the container made last
	request  image.Request // of the image pulled last
	called   func(name string)
	pid      int
	alive    func() bool
}

func (h *host) call(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	h.log = append(h.log, line)
	name, _, _ := strings.Cut(line, " ")
	if h.called != nil {
		h.called(name)
	}
	if errs := h.fail[name]; len(errs) > 0 {
		h.fail[name] = errs[1:]
		return errs[0]
	}
	return nil
}

func (h *host) RunSandbox(_ context.Context, c *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	return "new", h.call("run %d", c.GetMetadata().GetAttempt())
}
func (h *host) StopSandbox(_ context.Context, id string) error   { return h.call("stopsandbox %s", id) }
func (h *host) RemoveSandbox(_ context.Context, id string) error { return h.call("rmsandbox %s", id) }
func (h *host) SandboxProcess(_ context.Context, id string) (pid int, ready bool, err error) {
	err = h.call("pid %s", id)
	return h.pid, h.now.Sandboxes[0].Ready, err
}
func (h *host) CreateContainer(_ context.Context, sb string, c *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	return "made", h.call("create %s/%d in %s", c.GetMetadata().GetName(), c.GetMetadata().GetAttempt(), sb)
}
func (h *host) StartContainer(_ context.Context, id string) error  { return h.call("start %s", id) }
func (h *host) RemoveContainer(_ context.Context, id string) error { return h.call("rm %s", id) }
func (h *host) StopContainer(_ context.Context, id string, grace time.Duration) error {
	time.Sleep(h.stopTook)
	err := h.call("stop %s %v", id, grace)
	for i := range h.now.Containers {
		if h.now.Containers[i].ID == id && err == nil {
			h.now.Containers[i].State = podstate.StateExited
		}
	}
	return err
}
func (h *host) UpdateContainer(_ context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	return h.call("update %s shares=%d quota=%d memory=%d", id, r.GetCpuShares(), r.GetCpuQuota(), r.GetMemoryLimitInBytes())
}
func (h *host) UpdateSandbox(_ context.Context, id string, _, _ *runtimeapi.LinuxContainerResources) error {
	return h.call("updatesandbox %s", id)
}
func (h *host) ContainerMemory(_ context.Context, id string) (uint64, error) {
	return h.memory, h.call("memory %s", id)
}
func (h *host) Resized(k resources.Kernel) *runtimeapi.LinuxContainerResources {
	return criconfig.Kernel(k)
}

func (h *host) SandboxResources(*v1.Pod) (overhead, containers *runtimeapi.LinuxContainerResources) {
	return nil, nil
}
func (h *host) Raise(context.Context, *v1.Pod) error { return h.call("raise") }
func (h *host) Fit(context.Context, *v1.Pod) error   { return h.call("fit") }
func (h *host) InEffect(uid types.UID, generation int64) {
	_ = h.call("in effect %s generation=%d", uid, generation)
}

func (h *host) Put(_ context.Context, uid types.UID, e allocation.Entry) error {
	return h.call("keep %s generation=%d", uid, e.Generation)
}
func (h *host) Current(types.UID) podstate.Observed                 { return h.now }
func (h *host) Refresh(context.Context, types.UID) error            { return h.call("refresh") }
func (h *host) RefreshUntilSeen(ctx context.Context, uid types.UID) { _ = h.Refresh(ctx, uid) }
func (h *host) SawContainer(_ context.Context, id, _ string) error  { return h.call("saw %s", id) }
func (h *host) SawSandbox(_ context.Context, id string) error       { return h.call("saw %s", id) }
func (h *host) Gone(id string)                                      { _ = h.call("gone %s", id) }
func (h *host) Ensure(_ context.Context, r image.Request) (string, error) {
	h.request = r
	return "ref", h.call("pull")
}
func (h *host) Setup(context.Context, *v1.Pod, ...string) error { return h.call("setup") }
func (h *host) Teardown(context.Context, types.UID) error       { return h.call("teardown") }
func (h *host) RemovePodDir(types.UID) error                    { return h.call("rmdir") }
func (h *host) Remove(context.Context, types.UID) error         { return h.call("rmcgroup") }
func (h *host) Finish(context.Context, *v1.Pod) error           { return h.call("finish") }
func (h *host) Pull(_ context.Context, pod *v1.Pod) (*runtimeapi.PodSandboxConfig, error) {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Namespace: pod.Namespace}}, nil
}
func (h *host) Sandbox(_ context.Context, _ *v1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, string, error) {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt}}, "", nil
}
func (h *host) Container(_ context.Context, r criconfig.Request) (*runtimeapi.ContainerConfig, error) {
	h.target = r.TargetID
	return &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: r.Container, Attempt: uint32(r.RestartCount)}}, h.call("config")
}
func (h *host) Run(ctx context.Context, _ hook.Target, _ *v1.LifecycleHandler) error {
	_ = h.call("hook")
	return h.hook(ctx)
}

type events struct{ *host }

func (e events) Pod(_ *v1.Pod, _, reason, message string) {
	_ = e.call("event %s %s", reason, message)
}
func (e events) Container(_ *v1.Pod, _, _, reason, message string) {
	_ = e.call("event %s %s", reason, message)
}

func newExecutor(h *host, cfg Config) *Executor {
	h.hooks = map[string][]podstate.Hook{}
	if h.now.Sandboxes == nil {
		h.now.Sandboxes = []podstate.Sandbox{{ID: "sb", Ready: true, IPs: []string{"10.0.0.1"}}}
	}
	places := limiter.New(limiter.Config{})
	return New(cfg, Deps{
		Runtime: h, Observer: h, Images: h, Volumes: h, Cgroups: h, Materials: h, Hooks: h, Finisher: h, Allocations: h, Starts: places, Stops: places,
		Events: events{h}, HostIPs: func() []string { return []string{"192.0.2.1"} },
		ProcessAlive: func(int) bool { return h.alive() },
	})
}

func testPod() *v1.Pod {
	grace := int64(10)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"},
		Spec:       v1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{{Name: "c"}}},
	}
}

func (h *host) task(a podstate.Action) Task {
	return Task{Pod: testPod(), UID: "u", Action: a, Hooked: func(id string, k podstate.Hook) { h.hooks[id] = append(h.hooks[id], k) }}
}

var startC = podstate.Action{Key: podstate.Key{Kind: podstate.StartContainer, Object: "c"}, Container: "c", SandboxID: "sb", Attempt: 1, ImageRef: "ref"}

func calls(log []string) []string {
	return slices.DeleteFunc(slices.Clone(log), func(l string) bool { return strings.HasPrefix(l, "event") || l == "config" })
}

func TestStartingDealsFirstWithWhatIsThere(t *testing.T) {
	taken := status.Error(codes.Unknown, `failed to reserve container name "c": name "c" is reserved for "x"`)
	lost := status.Error(codes.Unavailable, "lost")
	for name, tc := range map[string]struct {
		there  []podstate.Container
		fail   map[string][]error
		want   []string
		reason string
	}{
		"nothing":           {nil, nil, []string{"saw sb", "create c/1 in sb", "start made", "saw made"}, ""},
		"an earlier one":    {[]podstate.Container{{ID: "old", Name: "c", State: podstate.StateExited}}, nil, []string{"saw sb", "create c/1 in sb", "start made", "saw made"}, ""},
		"half made":         {[]podstate.Container{{ID: "half", Name: "c", RestartCount: 1, State: podstate.StateCreated}}, nil, []string{"rm half", "gone half", "saw sb", "create c/1 in sb", "start made", "saw made"}, ""},
		"one that runs":     {[]podstate.Container{{ID: "run", Name: "c", RestartCount: 1, State: podstate.StateRunning}}, nil, nil, ""},
		"this one, ended":   {[]podstate.Container{{ID: "end", Name: "c", RestartCount: 1, SandboxID: "sb", State: podstate.StateExited}}, nil, nil, ""},
		"half made, stuck":  {[]podstate.Container{{ID: "half", Name: "c", State: podstate.StateCreated}}, map[string][]error{"rm": {lost}}, []string{"rm half", "refresh"}, reasonCreate},
		"its name is taken": {nil, map[string][]error{"create": {taken}}, []string{"saw sb", "create c/1 in sb", "refresh", "refresh"}, reasonCreate},
		"create fails":      {nil, map[string][]error{"create": {lost}}, []string{"saw sb", "create c/1 in sb", "saw sb", "refresh"}, reasonCreate},
		"start fails":       {nil, map[string][]error{"start": {lost}}, []string{"saw sb", "create c/1 in sb", "start made", "saw sb", "refresh"}, reasonRun},
		"config is missing": {nil, map[string][]error{"config": {reason.New(reasonConfig, errors.New(`configmap "x" not found`))}}, []string{"saw sb", "refresh"}, reasonConfig},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &host{now: podstate.Observed{Containers: tc.there}, fail: tc.fail}
				_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), h.task(startC))
				if reason.Of(err) != tc.reason {
					t.Errorf("error %v, want reason %q", err, tc.reason)
				}
				if got := calls(h.log); !slices.Equal(got, tc.want) {
					t.Errorf("calls %q, want %q", got, tc.want)
				}
			})
		})
	}
}

func TestAStartInASandboxThatGoesDownIsNoAttempt(t *testing.T) {
	refused := status.Error(codes.Unknown, "sandbox container \"sb\" is not running")
	for name, tc := range map[string]struct {
		downAt string             // the call by which the sandbox is down
		made   podstate.Container // what is seen of the container then
		fail   map[string][]error
		want   []string
		reason string
	}{
		"down before the start": {"saw", podstate.Container{}, nil, []string{"saw sb"}, ""},
		"down at the creation":  {"create", podstate.Container{}, map[string][]error{"create": {refused}}, []string{"saw sb", "create c/1 in sb", "saw sb"}, ""},
		"down at the start": {
			"start", podstate.Container{State: podstate.StateCreated}, map[string][]error{"start": {refused}},
			[]string{"saw sb", "create c/1 in sb", "start made", "saw sb", "saw made", "rm made", "gone made"}, "",
		},
		"it failed to start": {
			"start", podstate.Container{State: podstate.StateExited}, map[string][]error{"start": {refused}},
			[]string{"saw sb", "create c/1 in sb", "start made", "saw sb", "saw made", "rm made", "gone made"}, "",
		},
		"what was made stays": {
			"start", podstate.Container{State: podstate.StateCreated}, map[string][]error{"start": {refused}, "rm": {refused}},
			[]string{"saw sb", "create c/1 in sb", "start made", "saw sb", "saw made", "rm made", "refresh"}, reasonRun,
		},
		"it ran and ended with the sandbox": {
			"start", podstate.Container{State: podstate.StateExited, StartedAt: time.Unix(1, 0)}, map[string][]error{"start": {refused}},
			[]string{"saw sb", "create c/1 in sb", "start made", "saw sb", "saw made"}, "",
		},
		"it runs still": {
			"start", podstate.Container{State: podstate.StateRunning, StartedAt: time.Unix(1, 0)}, map[string][]error{"start": {refused}},
			[]string{"saw sb", "create c/1 in sb", "start made", "saw sb", "saw made"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{fail: tc.fail}
			h.called = func(name string) {
				if name == tc.downAt {
					h.now.Sandboxes = []podstate.Sandbox{{ID: "sb"}}
					if tc.made.ID = "made"; name == "start" {
						h.now.Containers = []podstate.Container{tc.made}
					}
				}
			}
			_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), h.task(startC))
			if reason.Of(err) != tc.reason {
				t.Errorf("error %v, want reason %q", err, tc.reason)
			}
			if got := calls(h.log); !slices.Equal(got, tc.want) {
				t.Errorf("calls %q, want %q", got, tc.want)
			}
			if said := slices.ContainsFunc(h.log, func(l string) bool { return strings.HasPrefix(l, "event Failed") }); said != (tc.reason != "") {
				t.Errorf("an event of a failure: %v, in %q", said, h.log)
			}
		})
	}
}

func TestTheProcessOfASandboxTellsBeforeTheRuntimeThatItGoes(t *testing.T) {
	made := []string{"pid sb", "create c/1 in sb"}
	started := append(slices.Clone(made), "pid sb", "start made", "saw made")
	for name, tc := range map[string]struct {
		pid    int
		diesAt string        // the call by which the process is dead
		downIn time.Duration // when the runtime says so; 0: never
		fails  error         // of the question for the process
		want   []string      // equal questions in a row are one
		after  time.Duration // the least that it took
	}{
		"it lives":                     {pid: 7, want: started},
		"the runtime names no process": {diesAt: "pid", want: started},
		"the runtime does not answer": {
			pid: 7, diesAt: "create", downIn: 50 * time.Millisecond, fails: errors.New("away"),
			want: []string{"pid sb", "saw sb", "create c/1 in sb", "pid sb", "saw sb", "saw made", "rm made", "gone made"},
		},
		"the sandbox is down": {pid: 7, diesAt: "pid", downIn: time.Nanosecond, want: []string{"pid sb", "saw sb"}},
		"it is dead":          {pid: 7, diesAt: "pid", downIn: 50 * time.Millisecond, want: []string{"pid sb", "saw sb"}},
		"it dies while the container is made": {
			pid: 7, diesAt: "create", downIn: 50 * time.Millisecond,
			want: append(slices.Clone(made), "pid sb", "saw sb", "saw made", "rm made", "gone made"),
		},
		"it cannot be seen from here": {pid: 7, diesAt: "pid", want: []string{"pid sb", "saw sb", "create c/1 in sb", "pid sb", "saw sb", "start made", "saw made"}, after: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, dead, began := &host{pid: tc.pid}, false, time.Now()
				if tc.fails != nil {
					h.fail = map[string][]error{"pid": {tc.fails}}
				}
				h.alive = func() bool { return !dead }
				h.called = func(name string) {
					dead = dead || name == tc.diesAt
					if name == "create" {
						h.now.Containers = []podstate.Container{{ID: "made", Name: "c", State: podstate.StateCreated}}
					}
					if dead && tc.downIn > 0 && time.Since(began) >= tc.downIn {
						h.now.Sandboxes = []podstate.Sandbox{{ID: "sb"}}
					}
				}
				start := startC
				start.SandboxUntil = began.Add(2 * time.Second)
				if _, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), h.task(start)); err != nil {
					t.Error(err)
				}
				if got := slices.Compact(calls(h.log)); !slices.Equal(got, slices.Compact(tc.want)) {
					t.Errorf("calls %q, want %q", got, tc.want)
				}
				if took := time.Since(began); took < tc.after {
					t.Errorf("it started after %v", took)
				}
			})
		})
	}
}

func TestAProcessThatHasEndedIsNotAlive(t *testing.T) {
	if !processAlive(os.Getpid()) {
		t.Error("this process is not alive")
	}
	child := exec.Command("true")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	// It has ended and is not reaped yet.
	if err := unix.Waitid(unix.P_PID, child.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if processAlive(child.Process.Pid) {
		t.Error("a zombie is alive")
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if processAlive(child.Process.Pid) {
		t.Error("a process that was reaped is alive")
	}
}

func TestPostStartIsKnownBeforeTheContainerRunsAndItsFailureIsToldOf(t *testing.T) {
	for _, fails := range []bool{false, true} {
		h := &host{hook: func(context.Context) error {
			if fails {
				return errors.New("no")
			}
			return nil
		}}
		task := h.task(startC)
		task.Pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
		_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), task)
		want := []podstate.Hook{podstate.HookRunning, podstate.HookDone}
		if fails {
			want[1] = podstate.HookFailed
		}
		if !slices.Equal(h.hooks["made"], want) || (err != nil) != fails {
			t.Errorf("hook fails %v: told %v, error %v", fails, h.hooks["made"], err)
		}
	}
}

func TestASandboxIsLookedAtUnlessAnEventHasToldAllOfIt(t *testing.T) {
	for name, tc := range map[string]struct {
		told []podstate.Sandbox
		want []string
	}{
		"nothing is known":            {nil, []string{"run 0", "saw new"}},
		"it has no address":           {[]podstate.Sandbox{{ID: "new", Ready: true}}, []string{"run 0", "saw new"}},
		"it is not ready":             {[]podstate.Sandbox{{ID: "new", IPs: []string{"10.0.0.1"}}}, []string{"run 0", "saw new"}},
		"all is known":                {[]podstate.Sandbox{{ID: "new", Ready: true, IPs: []string{"10.0.0.1"}}}, []string{"run 0"}},
		"it is on the host's network": {[]podstate.Sandbox{{ID: "new", Ready: true, HostNetwork: true}}, []string{"run 0"}},
	} {
		h := &host{now: podstate.Observed{Sandboxes: append([]podstate.Sandbox{{ID: "old"}}, tc.told...)}}
		if _, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: podstate.MakeSandbox}})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := calls(h.log); !slices.Equal(got, tc.want) {
			t.Errorf("%s: calls %q, want %q", name, got, tc.want)
		}
	}
}

// places notes in which order places are asked for.
type places struct{ asked []limiter.Order }

func (p *places) Acquire(_ context.Context, o limiter.Order) (func(), error) {
	p.asked = append(p.asked, o)
	return func() {}, nil
}

func TestWhatHasEndedIsRemovedAfterAllPodsThatAreThere(t *testing.T) {
	h := &host{now: podstate.Observed{Containers: []podstate.Container{{ID: "c1", Name: "c", State: podstate.StateExited}}}}
	e := newExecutor(h, Config{})
	p := &places{}
	e.deps.Stops = p
	began := time.Now()
	for _, a := range []podstate.Action{
		{Key: podstate.Key{Kind: podstate.RemoveContainer, Object: "c1"}, ID: "c1", Container: "c"},
		{Key: podstate.Key{Kind: podstate.RemoveSandbox, Object: "sb"}, ID: "sb"},
		{Key: podstate.Key{Kind: podstate.StopSandbox, Object: "sb"}, ID: "sb"},
	} {
		task := h.task(a)
		task.Order = limiter.Order{Critical: true, Created: began.Add(-time.Hour)}
		_, _ = e.Do(t.Context(), t.Context(), task)
	}
	if len(p.asked) != 3 || p.asked[0].Critical || p.asked[0].Created.Before(began) || p.asked[1].Created.Before(began) || !p.asked[2].Critical {
		t.Errorf("places were asked for with %+v", p.asked)
	}
}

func TestOnlyANewSandboxHasTheCgroupMade(t *testing.T) {
	for name, tc := range map[string]struct {
		action podstate.Action
		fail   error
		made   int
		reason string
	}{
		"a sandbox": {podstate.Action{Key: podstate.Key{Kind: podstate.MakeSandbox}, Attempt: 1}, nil, 1, ""},
		"a container in a sandbox of an earlier process": {startC, nil, 0, ""},
		"a sandbox without a cgroup":                     {podstate.Action{Key: podstate.Key{Kind: podstate.MakeSandbox}, Attempt: 1}, errors.New("read-only"), 1, "ConfigPodSandboxError"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{}
			e := newExecutor(h, Config{})
			made := 0
			e.deps.EnsureCgroup = func(context.Context, *v1.Pod) (string, error) {
				made++
				return "", tc.fail
			}
			_, err := e.Do(t.Context(), t.Context(), h.task(tc.action))
			if made != tc.made || reason.Of(err) != tc.reason {
				t.Errorf("made %d times, error %v; calls %q", made, err, h.log)
			}
			const event = "event FailedCreatePodContainer unable to ensure pod container exists: read-only"
			if slices.Contains(h.log, event) != (tc.fail != nil) {
				t.Errorf("events of %q", h.log)
			}
		})
	}
}

func TestAFailedStartIsToldInTheRuntimesOwnWords(t *testing.T) {
	const why = "failed to create containerd task: exec: no such file"
	for _, call := range []string{"create", "start"} {
		h := &host{fail: map[string][]error{call: {status.Error(codes.Unknown, why)}}}
		_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), h.task(startC))
		if err == nil || err.Error() != why || status.Code(err) != codes.Unknown || !slices.Contains(h.log, "event Failed Error: "+why) {
			t.Errorf("%s: error %v, calls %q", call, err, h.log)
		}
	}
}

// noPlace is full for good.
type noPlace struct{}

func (noPlace) Acquire(ctx context.Context, _ limiter.Order) (func(), error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAContainerIsStoppedWithItsWholeGraceThoughNoPlaceIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{now: podstate.Observed{Containers: []podstate.Container{{ID: "r", Name: "c", State: podstate.StateRunning}}}}
		e := newExecutor(h, Config{})
		e.deps.Stops = noPlace{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := e.Do(ctx, ctx, h.task(podstate.Action{Key: podstate.Key{Kind: podstate.KillContainer, Object: "r"}, ID: "r", Container: "c", GraceSeconds: 7}))
		if got := calls(h.log); err != nil || !slices.Contains(got, "stop r 7s") {
			t.Errorf("calls %q, error %v", got, err)
		}
	})
}

func TestASandboxWhoseAnswerWasLostIsAdopted(t *testing.T) {
	h := &host{fail: map[string][]error{"run": {status.Error(codes.Unknown, `name "p" is reserved for "x"`)}}}
	e := newExecutor(h, Config{})
	h.now.Sandboxes = []podstate.Sandbox{{ID: "x", Attempt: 0, Ready: true}}
	if _, err := e.Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: podstate.MakeSandbox}})); err != nil {
		t.Errorf("not adopted: %v", err)
	}
	h.fail["run"] = []error{status.Error(codes.Unknown, `name "p" is reserved for "y"`)}
	if _, err := e.Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: podstate.MakeSandbox}, Attempt: 1})); err == nil {
		t.Error("a sandbox that is not there was taken for made")
	}
}

func TestAStopIsAnnouncedOnceAndItsHookMayFail(t *testing.T) {
	for name, tc := range map[string]struct {
		hook   func(context.Context) error // nil: there is none
		cut    time.Duration
		failed bool
	}{
		"no hook":            {nil, time.Minute, false},
		"a hook":             {func(context.Context) error { return nil }, time.Minute, false},
		"a hook that fails":  {func(context.Context) error { return errors.New("no") }, time.Minute, true},
		"a hook that is cut": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &host{hook: tc.hook, now: podstate.Observed{Containers: []podstate.Container{{ID: "r", Name: "c", State: podstate.StateRunning}}}}
				e := newExecutor(h, Config{})
				begin := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.BeginStop, Object: "r"}, ID: "r", Container: "c", Reason: "Stopping container c"})
				if tc.hook != nil {
					begin.Pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}}
				}
				ctx, cancel := context.WithTimeout(t.Context(), tc.cut)
				defer cancel()
				if _, err := e.Do(t.Context(), ctx, begin); err != nil {
					t.Fatal(err)
				}
				kill := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.KillContainer, Object: "r"}, ID: "r", Container: "c", GraceSeconds: 7, Announced: true, Reason: "Stopping container c"})
				if _, err := e.Do(t.Context(), t.Context(), kill); err != nil {
					t.Fatal(err)
				}
				said := slices.DeleteFunc(slices.Clone(h.log), func(l string) bool { return l != "event Killing Stopping container c" })
				if len(said) != 1 || !slices.Contains(h.log, "stop r 7s") || slices.Contains(h.log, "event FailedPreStopHook PreStopHook failed") != tc.failed {
					t.Errorf("log %q, want one announcement, a stop with 7s, hook failed %v", h.log, tc.failed)
				}
			})
		})
	}
}

func TestAnOrphansHookIsRunFromItsRecord(t *testing.T) {
	ran := 0
	h := &host{hook: func(context.Context) error { ran++; return errors.New("no") }}
	h.now.Containers = []podstate.Container{{ID: "r", Name: "c", State: podstate.StateRunning, PreStop: &v1.LifecycleHandler{}}}
	task := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.BeginStop, Object: "r"}, ID: "r", Container: "c"})
	task.Pod = nil
	if _, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), task); err != nil || ran != 1 {
		t.Errorf("error %v, the hook ran %d times, log %q", err, ran, h.log)
	}
}

func TestAStopThatMayTakeForEverIsNotShort(t *testing.T) {
	h := &host{now: podstate.Observed{Containers: []podstate.Container{{ID: "r", Name: "c", State: podstate.StateRunning}}}}
	kill := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.KillContainer, Object: "r"}, ID: "r", Container: "c", GraceSeconds: math.MaxInt64})
	if _, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), kill); err != nil || !slices.Contains(h.log, "stop r "+podutil.Seconds(math.MaxInt64).String()) {
		t.Errorf("error %v, log %q", err, h.log)
	}
}

func TestADebugContainerJoinsTheContainerItNames(t *testing.T) {
	for name, tc := range map[string]struct {
		state  podstate.ContainerState
		target string
		reason string
	}{
		"it runs":      {podstate.StateRunning, "r", ""},
		"it has ended": {podstate.StateExited, "", reasonConfig},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{now: podstate.Observed{Containers: []podstate.Container{{ID: "r", Name: "c", State: tc.state}}}}
			task := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.StartContainer, Object: "debug"}, Container: "debug", SandboxID: "sb"})
			task.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}, TargetContainerName: "c",
			}}
			_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), task)
			if reason.Of(err) != tc.reason || h.target != tc.target {
				t.Errorf("error %v, target %q; want reason %q, target %q", err, h.target, tc.reason, tc.target)
			}
		})
	}
}

func TestADebugContainerNeedsNoRunningTargetWhereProcessesAreShared(t *testing.T) {
	for name, share := range map[string]func(*v1.PodSpec){
		"the pod's":  func(s *v1.PodSpec) { s.ShareProcessNamespace = ptr.To(true) },
		"the host's": func(s *v1.PodSpec) { s.HostPID = true },
	} {
		for _, state := range []podstate.ContainerState{podstate.StateExited, podstate.StateRunning} {
			h := &host{now: podstate.Observed{Containers: []podstate.Container{{ID: "r", Name: "c", State: state}}}}
			task := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.StartContainer, Object: "debug"}, Container: "debug", SandboxID: "sb"})
			share(&task.Pod.Spec)
			task.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}, TargetContainerName: "c",
			}}
			if _, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), task); err != nil || h.target != "" {
				t.Errorf("in %s namespace, the target %v: error %v, joins %q", name, state, err, h.target)
			}
		}
	}
}

func TestAStopThatLeavesTheContainerRunningIsAFailure(t *testing.T) {
	h := &host{now: podstate.Observed{Containers: []podstate.Container{{ID: "r", Name: "c", State: podstate.StateRunning}, {ID: "other"}}}}
	e := newExecutor(h, Config{})
	h.fail = map[string][]error{"stop": {errors.New("busy")}}
	_, err := e.Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: podstate.KillContainer, Object: "r"}, ID: "r", Container: "c", GraceSeconds: 2}))
	if reason.Of(err) != reasonKill || !slices.Contains(h.log, "event FailedKillPod error killing pod: busy") {
		t.Errorf("error %v, log %q", err, h.log)
	}
}

func TestLogsAreLinkedCountedAndRemoved(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{PodLogsDir: filepath.Join(dir, "pods"), ContainerLogsDir: filepath.Join(dir, "containers")}
	h := &host{}
	e := newExecutor(h, cfg)
	if _, err := e.Do(t.Context(), t.Context(), h.task(startC)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(cfg.ContainerLogsDir, "p_ns_c-made.log")
	if target, err := os.Readlink(link); err != nil || target != filepath.Join(cfg.PodLogsDir, "ns_p_u", "c", "1.log") {
		t.Errorf("link to %q, %v", target, err)
	}
	logs := filepath.Join(cfg.PodLogsDir, "ns_p_u", "c")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"0.log", "1.log", "1.log.20261120-120000.gz", "10.log", "x.log"} {
		if err := os.WriteFile(filepath.Join(logs, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.LogCounts(testPod()); got["c"] != 10 {
		t.Errorf("log counts %v", got)
	}
	h.now.Containers = []podstate.Container{{ID: "made", Name: "c", RestartCount: 1, State: podstate.StateExited}}
	if _, err := e.Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveContainer, Object: "made"}, ID: "made", Container: "c"})); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(logs)
	if _, err := os.Lstat(link); len(left) != 3 || !os.IsNotExist(err) {
		t.Errorf("left %v, link %v", left, err)
	}
	orphan := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveDirectories}})
	orphan.Pod = nil
	if err := os.Symlink(filepath.Join(logs, "0.log"), filepath.Join(cfg.ContainerLogsDir, "p_ns_c-old.log")); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Do(t.Context(), t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	pods, _ := os.ReadDir(cfg.PodLogsDir)
	links, _ := os.ReadDir(cfg.ContainerLogsDir)
	if len(pods)+len(links) != 0 {
		t.Errorf("left %v and %v", pods, links)
	}
}

func TestReasonsOfFailures(t *testing.T) {
	for _, tc := range []struct {
		kind   podstate.Kind
		fail   string
		err    error
		reason string
	}{
		{podstate.PullImage, "pull", reason.New("ErrImageNeverPull", errors.New("x")), "ErrImageNeverPull"},
		{podstate.SetupVolumes, "setup", errors.New("x"), "FailedMount"},
		{podstate.MakeSandbox, "run", errors.New("x"), "CreatePodSandboxError"},
		{podstate.StopSandbox, "stopsandbox", errors.New("x"), "KillPodSandboxError"},
		{podstate.RemoveCgroup, "rmcgroup", errors.New("x"), "FailedRemoveCgroup"},
		{podstate.DeleteObject, "finish", errors.New("x"), "FailedDelete"},
	} {
		h := &host{fail: map[string][]error{tc.fail: {tc.err}}}
		_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: tc.kind}, Container: "c"}))
		if reason.Of(err) != tc.reason {
			t.Errorf("%s: %v, want reason %s", tc.kind, err, tc.reason)
		}
	}
}

func TestAnImageIsPulledForThePodsSandboxBeforeThereIsOne(t *testing.T) {
	for name, a := range map[string]podstate.Action{
		"of a container":     {Key: podstate.Key{Kind: podstate.PullImage, Object: "c"}, Container: "c"},
		"of an image volume": {Key: podstate.Key{Kind: podstate.PullImage, Object: podstate.VolumeKey("v")}, Volume: "v"},
	} {
		h := &host{}
		task := h.task(a)
		task.Pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data:1"}}}}
		e := newExecutor(h, Config{})
		h.now.Sandboxes = nil
		task.Action.Early = true
		if _, err := e.Do(t.Context(), t.Context(), task); err != nil || !h.request.Early || h.request.Sandbox.GetMetadata().GetNamespace() != "ns" {
			t.Errorf("%s: %v, %v", name, h.request.Sandbox, err)
		}
	}
}

func TestWhatEventsHaveToldIsNotAskedAgain(t *testing.T) {
	h := &host{now: podstate.Observed{
		Sandboxes:  []podstate.Sandbox{{ID: "sb", Ready: false}},
		Containers: []podstate.Container{{ID: "r", Name: "c", State: podstate.StateRunning}},
	}}
	e := newExecutor(h, Config{})
	if _, err := e.Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: podstate.StopSandbox, Object: "sb"}, ID: "sb"})); err != nil {
		t.Fatal(err)
	}
	// StopContainer of the fake makes the container Exited, as an event would.
	if _, err := e.Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: podstate.KillContainer, Object: "r"}, ID: "r", Container: "c", GraceSeconds: 2})); err != nil {
		t.Fatal(err)
	}
	if got := calls(h.log); !slices.Equal(got, []string{"stopsandbox sb", "stop r 2s"}) {
		t.Errorf("calls %q", got)
	}
}
