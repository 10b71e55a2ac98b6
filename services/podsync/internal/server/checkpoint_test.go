package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

func TestACheckpointIsWrittenByTheRuntimeWhereOnlyRootMayRead(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		resp, err := r.client.CheckpointContainer(t.Context(), &podsyncv1.CheckpointContainerRequest{Pod: ref, Container: "c", Timeout: durationpb.New(7 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		call := r.runtime.checkpoint
		if call.GetContainerId() != "c1" || call.GetTimeout() != 7 || call.GetLocation() != resp.GetPath() {
			t.Errorf("the runtime was asked for %v, the answer is %v", call, resp)
		}
		name, when, _ := strings.Cut(strings.TrimSuffix(filepath.Base(resp.GetPath()), ".tar"), "-c-")
		if _, err := time.Parse(time.RFC3339, when); name != "checkpoint-p_ns" || err != nil {
			t.Errorf("path %s: %v", resp.GetPath(), err)
		}
		if info, err := os.Stat(filepath.Dir(resp.GetPath())); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("directory %v, %v", info, err)
		}
	})
}

func TestACheckpointThatCannotBeMadeSaysWhy(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		ask := func(ref *podsyncv1.PodRef, container string, timeout time.Duration) error {
			_, err := r.client.CheckpointContainer(t.Context(), &podsyncv1.CheckpointContainerRequest{Pod: ref, Container: container, Timeout: durationpb.New(timeout)})
			return err
		}
		wantCode(t, ask(ref, "c", 0), codes.NotFound, `pod "p" does not exist`)
		r.pods.Set(runningPod())
		wantCode(t, ask(ref, "nosuch", 0), codes.NotFound, `container "nosuch" not found`)
		wantCode(t, ask(ref, "c", -time.Second), codes.InvalidArgument, "-1s")
		wantCode(t, ask(ref, "c", 0), codes.Internal, `checkpointing of ns/p/c failed (precondition failed: container not found ("c")`)
		r.addRunning()
		// The runtime's code is not the caller's: the pod is there.
		r.runtime.checkpointErr = status.Error(codes.NotFound, "criu is missing")
		wantCode(t, ask(ref, "c", 0), codes.Internal, "criu is missing")
	})
}
