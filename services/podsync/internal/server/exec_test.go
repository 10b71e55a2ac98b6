package server

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"slices"

	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestCommandsGoToTheRunningContainer(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		resp, err := r.client.ExecSync(t.Context(), &podsyncv1.ExecSyncRequest{Pod: ref, Container: "c", Command: []string{"x"}})
		if err != nil || string(resp.GetStdout()) != "out" || resp.GetExitCode() != 3 || r.runtime.sync.GetContainerId() != "c1" {
			t.Fatalf("response %v, error %v", resp, err)
		}
		_, err = r.client.ExecSync(t.Context(), &podsyncv1.ExecSyncRequest{Pod: ref, Container: "c", ContainerId: "old", Command: []string{"x"}})
		wantCode(t, err, codes.FailedPrecondition, "runs as c1 now")
		_, err = r.client.ExecSync(t.Context(), &podsyncv1.ExecSyncRequest{Pod: ref, Container: "c"})
		wantCode(t, err, codes.InvalidArgument, "empty")
		_, err = r.client.ExecSync(t.Context(), &podsyncv1.ExecSyncRequest{Pod: &podsyncv1.PodRef{Namespace: "ns", Name: "q"}, Container: "c", Command: []string{"x"}})
		wantCode(t, err, codes.NotFound, `pod "q" does not exist`)
		_, err = r.client.OpenExec(t.Context(), &podsyncv1.OpenExecRequest{Pod: ref, Container: "d", Command: []string{"x"}, Streams: &podsyncv1.StreamOptions{Stdout: true}})
		wantCode(t, err, codes.FailedPrecondition, `container not found ("d")`)
		_, err = r.client.OpenExec(t.Context(), &podsyncv1.OpenExecRequest{Pod: ref, Container: "c", Command: []string{"x"}})
		wantCode(t, err, codes.InvalidArgument, "at least 1 of stdin, stdout, stderr")
	})
}

// addProbed adds a pod that runs, with an exec probe.
func (r *rig) addProbed() *podsyncv1.ProbeKey {
	r.addRunning()
	pod := runningPod().Pod
	pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "PORT", Value: "80"}}
	pod.Spec.Containers[0].LivenessProbe = &v1.Probe{TimeoutSeconds: 7, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check", "$(PORT)"}}}}
	target := func(typ podstate.ProbeType) podstate.Target {
		return podstate.Target{ProbeKey: podstate.ProbeKey{Container: "c", Type: typ}, ContainerID: "c1"}
	}
	r.board.Set(pod, []podstate.Target{target(podstate.Liveness), target(podstate.Readiness)})
	return &podsyncv1.ProbeKey{PodUid: "u", Container: "c", Type: podsyncv1.ProbeType_PROBE_TYPE_LIVENESS}
}

func TestAProbeRunsTheSpecsCommandAndNoOther(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		key := r.addProbed()
		resp, err := r.client.ExecProbe(t.Context(), &podsyncv1.ExecProbeRequest{Key: key, ContainerId: "c1"})
		if err != nil || string(resp.GetOutput()) != "outerr" || resp.GetExitCode() != 3 {
			t.Fatalf("response %v, error %v", resp, err)
		}
		if got := r.runtime.sync; got.GetContainerId() != "c1" || !slices.Equal(got.GetCmd(), []string{"check", "80"}) || got.GetTimeout() != 7 {
			t.Errorf("the runtime was asked for %v", got)
		}
		r.runtime.sync = nil
		_, err = r.client.ExecProbe(t.Context(), &podsyncv1.ExecProbeRequest{Key: key, ContainerId: "c0"})
		wantCode(t, err, codes.FailedPrecondition, "runs as c1 now, not as c0")
		_, err = r.client.ExecProbe(t.Context(), &podsyncv1.ExecProbeRequest{Key: key})
		wantCode(t, err, codes.FailedPrecondition, "runs as c1 now")
		key.Type = podsyncv1.ProbeType_PROBE_TYPE_READINESS // by HTTP
		_, err = r.client.ExecProbe(t.Context(), &podsyncv1.ExecProbeRequest{Key: key, ContainerId: "c1"})
		wantCode(t, err, codes.NotFound, "has no exec probe")
		key.Type = podsyncv1.ProbeType_PROBE_TYPE_STARTUP
		_, err = r.client.ExecProbe(t.Context(), &podsyncv1.ExecProbeRequest{Key: key, ContainerId: "c1"})
		wantCode(t, err, codes.NotFound, "has no exec probe")
		_, err = r.client.ExecProbe(t.Context(), &podsyncv1.ExecProbeRequest{})
		wantCode(t, err, codes.NotFound, "has no exec probe")
		if r.runtime.sync != nil {
			t.Errorf("the runtime was asked for %v", r.runtime.sync)
		}
	})
}

// A runtime that hangs must not end each container that has an exec probe; and a
// command that takes too long fails its probe, whenever the runtime says so: what it
// started may hold its output for long.
func TestARuntimeThatHangsSaysNothingAboutTheContainer(t *testing.T) {
	const timeout = 7 * time.Second
	for name, tc := range map[string]struct {
		takes, holds, call time.Duration
		hangs, restarts    bool
		fails              bool
		ends               time.Duration
		want               string
	}{
		"the runtime hangs":                                {hangs: true, ends: timeout + longestHold, want: "the runtime has not answered"},
		"the runtime hangs, and the caller leaves":         {hangs: true, call: timeout + time.Second, ends: timeout + time.Second},
		"the command takes too long":                       {takes: time.Hour, fails: true, ends: timeout},
		"what it started ends later":                       {takes: time.Hour, holds: timeout + 10*time.Second, fails: true, ends: timeout + 10*time.Second, want: "what it started goes on"},
		"what it started never ends":                       {takes: time.Hour, holds: time.Hour, fails: true, ends: timeout + longestHold, want: "what it started goes on"},
		"it ended in time, and what it started, later":     {takes: time.Second, holds: time.Minute, ends: time.Minute},
		"the runtime is restarted while it waits for that": {takes: time.Second, holds: time.Minute, restarts: true, ends: time.Minute, want: "it goes"},
	} {
		run(t, func(t *testing.T, r *rig) {
			r.runtime.takes, r.runtime.holds, r.runtime.hangs, r.runtime.restarts = tc.takes, tc.holds, tc.hangs, tc.restarts
			// Not through a connection: whether the caller sees its own deadline or this
			// error is chance.
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.call, time.Hour))
			defer cancel()
			began := time.Now()
			_, err := r.server.ExecProbe(ctx, &podsyncv1.ExecProbeRequest{Key: r.addProbed(), ContainerId: "c1"})
			if took := time.Since(began); took != tc.ends {
				t.Errorf("%s: it took %s, want %s", name, took, tc.ends)
			}
			switch {
			case !tc.hangs && !tc.restarts && !tc.fails:
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			case err == nil || !strings.Contains(err.Error(), tc.want):
				t.Errorf("%s: %v", name, err)
			case tc.call == 0 && errors.Is(rpcerr.FromStatus(rpcerr.ToStatus(err).Err()), rpcerr.ErrTimeout) != tc.fails:
				t.Errorf("%s: held against the container: %t; %v", name, !tc.fails, err)
			}
		})
	}
}

func TestAProbesAnswerIsHeldNoLargerThanItIsShown(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		key := r.addProbed()
		for _, size := range []int{15 << 20, 6 << 10} {
			r.runtime.output = make([]byte, size)
			resp, err := r.client.ExecProbe(t.Context(), &podsyncv1.ExecProbeRequest{Key: key, ContainerId: "c1"})
			if err != nil || len(resp.GetOutput()) != 10<<10 {
				t.Errorf("of twice %d bytes %d came, %v", size, len(resp.GetOutput()), err)
			}
		}
	})
}

func TestATerminalHasNoErrorStreamOfItsOwn(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		all := &podsyncv1.StreamOptions{Stdin: true, Stdout: true, Stderr: true}
		attach, err := r.client.OpenAttach(t.Context(), &podsyncv1.OpenAttachRequest{Pod: ref, Container: "c", Streams: all})
		if err != nil || attach.GetUrl() == "" || !r.runtime.attach.GetTty() || r.runtime.attach.GetStderr() {
			t.Fatalf("request %v, error %v", r.runtime.attach, err)
		}
		exec, err := r.client.OpenExec(t.Context(), &podsyncv1.OpenExecRequest{Pod: ref, Container: "c", Command: []string{"sh"}, Streams: all})
		if err != nil || exec.GetUrl() == "" || r.runtime.exec.GetTty() || !r.runtime.exec.GetStderr() {
			t.Fatalf("request %v, error %v", r.runtime.exec, err)
		}
		if _, err := r.client.OpenPortForward(t.Context(), &podsyncv1.OpenPortForwardRequest{Pod: ref, Ports: []int32{80}}); err != nil || r.runtime.forward.GetPodSandboxId() != "s1" {
			t.Fatalf("request %v, error %v", r.runtime.forward, err)
		}
		_, err = r.client.OpenPortForward(t.Context(), &podsyncv1.OpenPortForwardRequest{Pod: ref, Ports: []int32{0}})
		wantCode(t, err, codes.InvalidArgument, "port 0")
		_, err = r.client.OpenPortForward(t.Context(), &podsyncv1.OpenPortForwardRequest{Pod: ref, Ports: slices.Repeat([]int32{80}, 129)})
		wantCode(t, err, codes.InvalidArgument, "too many")
	})
}
