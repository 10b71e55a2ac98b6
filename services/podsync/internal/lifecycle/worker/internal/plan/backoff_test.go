package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func TestAChangeOfImageOrResourcesForgetsTheBackoff(t *testing.T) {
	spec := &v1.Container{Name: "a", Image: "img"}
	for name, c := range map[string]struct {
		made podstate.Container
		kept bool
	}{
		"the same":        {podstate.Container{SpecHash: podutil.Hash(spec), BackoffKey: podutil.BackoffKey(spec)}, true},
		"another agent's": {podstate.Container{}, true},
		"another image":   {podstate.Container{SpecHash: "x", BackoffKey: podutil.BackoffKey(spec)}, false},
		"other resources": {podstate.Container{SpecHash: podutil.Hash(spec), BackoffKey: "x"}, false},
	} {
		ended := c.made
		ended.State, ended.ExitCode, ended.FinishedAt, ended.Backoff = podstate.StateExited, 1, start, 40*time.Second
		p := &planner{s: &State{Now: start, Pod: testPod(v1.RestartPolicyAlways)}}
		at, _ := p.restartTime(&view{spec: spec, class: regular, found: found{newest: &ended}})
		if kept := at.Equal(start.Add(40 * time.Second)); kept != c.kept {
			t.Errorf("%s: it starts at %v", name, at)
		}
	}
}

func TestTheFirstBackoffMayBeShorter(t *testing.T) {
	c := &podstate.Container{StartedAt: start, FinishedAt: start.Add(time.Second)}
	for _, tc := range []struct {
		node Node
		want time.Duration
	}{
		{Node{}, 10 * time.Second},
		{Node{FirstContainerRestartPeriod: time.Second, MaxContainerRestartPeriod: time.Minute}, time.Second},
		{Node{MaxContainerRestartPeriod: 3 * time.Second}, 3 * time.Second},
	} {
		if _, next := restartAt(c, tc.node); next != tc.want {
			t.Errorf("%+v: %v, want %v", tc.node, next, tc.want)
		}
	}
}
