package execute

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/reason"
)

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
