package server

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestTargetsGoDownAndResultsComeUp(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		key := podstate.ProbeKey{Container: "c", Type: podstate.Readiness}
		r.board.Set(runningPod().Pod, []podstate.Target{{ProbeKey: key, ContainerID: "c1", PodIP: "10.0.0.9"}})
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := r.client.SyncProbes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := stream.Recv()
		if err != nil || !frame.GetSnapshot() || len(frame.GetTargets()) != 1 {
			t.Fatalf("frame %v, error %v", frame, err)
		}
		target := frame.GetTargets()[0]
		if h := target.GetHttpGet(); h.GetScheme() != "https" || h.GetPort() != 80 || target.GetPeriodSeconds() != 10 || target.GetFailureThreshold() != 3 || target.GetPodIp() != "10.0.0.9" || target.GetLastOutcome() != 0 {
			t.Fatalf("target %v", target)
		}
		if err := stream.Send(&podsyncv1.SyncProbesRequest{Results: []*podsyncv1.ProbeResult{{
			Key: target.GetKey(), ContainerId: "c1", Outcome: podsyncv1.ProbeOutcome_PROBE_OUTCOME_SUCCESS, Failures: 2,
		}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(r.results) != 1 || !r.results[0].Success {
			t.Fatalf("results %+v", r.results)
		}
		cancel()
		again, err := r.client.SyncProbes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if frame, err = again.Recv(); err != nil || frame.GetTargets()[0].GetLastOutcome() != podsyncv1.ProbeOutcome_PROBE_OUTCOME_SUCCESS || frame.GetTargets()[0].GetLastFailures() != 2 {
			t.Fatalf("a probe process that starts anew is not told what stands: %v, %v", frame, err)
		}
		if err := again.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := again.Recv(); !errors.Is(err, io.EOF) {
			t.Fatalf("the stream ends with %v", err)
		}
	})
}
