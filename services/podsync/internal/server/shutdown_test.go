package server

import (
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

func TestThatTheMachineGoesDownIsPassedOn(t *testing.T) {
	s := &Server{}
	if _, err := s.SetShutdown(t.Context(), &podsyncv1.SetShutdownRequest{}); !errors.Is(err, rpcerr.ErrUnimplemented) {
		t.Errorf("nobody is there to be told: %v", err)
	}
	var told []bool
	state := RuntimeState{}
	s.deps.Pods, s.deps.Table = podcache.NewPods(1), podcache.NewTable(1)
	ended := runningPod()
	ended.Status.Phase = v1.PodFailed
	other := runningPod()
	other.Pod = other.Pod.DeepCopy()
	other.Pod.UID = "running"
	for _, pod := range []podcache.Pod{ended, other} {
		s.deps.Pods.Set(pod)
		s.deps.Table.SetVolumes(podcache.Volumes{UID: pod.Pod.UID, Volumes: make([]podcache.Volume, 1)})
	}
	s.deps.State = func() RuntimeState { return state }
	s.deps.Shutdown = func(active bool) { told = append(told, active) }
	for _, active := range []bool{true, false} {
		r, err := s.SetShutdown(t.Context(), &podsyncv1.SetShutdownRequest{Active: active})
		if err != nil {
			t.Fatal(err)
		}
		if r.GetPodsWithVolumes() != 1 || !slices.Equal(r.GetUidsWithVolumes(), []string{string(ended.Pod.UID)}) {
			t.Errorf("%d pods that have ended have volumes: %v", r.GetPodsWithVolumes(), r.GetUidsWithVolumes())
		}
		if r.GetPodsKnown() == active {
			t.Errorf("all pods are known: %v", r.GetPodsKnown())
		}
		state = RuntimeState{SourcesReady: time.Now(), LastRelist: time.Now()}
	}
	if len(told) != 2 || !told[0] || told[1] {
		t.Errorf("told %v", told)
	}
}
