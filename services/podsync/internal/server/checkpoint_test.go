package server

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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

func TestCheckpointsDoNotFillTheDiskAndReplaceNone(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		dir := filepath.Join(r.dir, "checkpoints")
		if err := os.Mkdir(dir, 0o755); err != nil { // somebody else's making
			t.Fatal(err)
		}
		ask := func() error {
			resp, err := r.client.CheckpointContainer(t.Context(), &podsyncv1.CheckpointContainerRequest{Pod: ref, Container: "c"})
			if err != nil {
				return err
			}
			if _, err := os.Lstat(resp.GetPath()); err == nil {
				t.Errorf("%s was there before", resp.GetPath())
			}
			time.Sleep(time.Millisecond) // of virtual time: many in a second
			return os.WriteFile(resp.GetPath(), nil, 0o600)
		}
		r.diskUsed = 95
		wantCode(t, ask(), codes.ResourceExhausted, "5 % of the disk")
		r.diskUsed = 50
		if err := os.WriteFile(filepath.Join(dir, "checkpoint-p_ns-c-other-2026-01-01T00:00:00Z.tar"), nil, 0o600); err != nil { // container c-other
			t.Fatal(err)
		}
		for range maxCheckpoints {
			if err := ask(); err != nil {
				t.Fatal(err)
			}
		}
		wantCode(t, ask(), codes.ResourceExhausted, "remove some")
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("directory %v, %v", info, err)
		}
	})
}

func TestCheckpointsUnderWayCountAmongThoseThatAreThere(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		r.runtime.checkpointing = make(chan struct{})
		ask := func() error {
			_, err := r.client.CheckpointContainer(t.Context(), &podsyncv1.CheckpointContainerRequest{Pod: ref, Container: "c"})
			return err
		}
		answers := make(chan error, 2*maxCheckpoints)
		for range 2 * maxCheckpoints {
			go func() { answers <- ask() }()
		}
		synctest.Wait()
		// Those that are over the limit are refused at once, the others run.
		for range len(answers) {
			wantCode(t, <-answers, codes.ResourceExhausted, "remove some")
		}
		slices.Sort(r.runtime.locations)
		if n := len(slices.Compact(slices.Clone(r.runtime.locations))); n != maxCheckpoints || len(r.runtime.locations) != n {
			t.Errorf("%d files of %d checkpoints, want %d", n, len(r.runtime.locations), maxCheckpoints)
		}
		// One whose file is there already counts once.
		if err := os.WriteFile(r.runtime.locations[0], nil, 0o600); err != nil {
			t.Fatal(err)
		}
		close(r.runtime.checkpointing)
		for range r.runtime.locations {
			if err := <-answers; err != nil {
				t.Fatal(err)
			}
		}
		// They are over, and one has left a file.
		for i := range maxCheckpoints - 1 {
			if err := ask(); err != nil {
				t.Fatalf("checkpoint %d after the others: %v", i, err)
			}
			if err := os.WriteFile(r.runtime.checkpoint.GetLocation(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // of virtual time
		}
		wantCode(t, ask(), codes.ResourceExhausted, "remove some")
	})
}

func TestACheckpointUnderWayWhoseFileIsThereCountsOnce(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		for i := range maxCheckpoints - 2 {
			if err := os.MkdirAll(filepath.Join(r.dir, "checkpoints"), 0o700); err != nil {
				t.Fatal(err)
			}
			name := "checkpoint-p_ns-c-" + time.Unix(int64(i), 0).Format(time.RFC3339) + ".tar"
			if err := os.WriteFile(filepath.Join(r.dir, "checkpoints", name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.runtime.checkpointing = make(chan struct{})
		answers := make(chan error, 2)
		ask := func() {
			_, err := r.client.CheckpointContainer(t.Context(), &podsyncv1.CheckpointContainerRequest{Pod: ref, Container: "c"})
			answers <- err
		}
		go ask()
		synctest.Wait()
		if err := os.WriteFile(r.runtime.checkpoint.GetLocation(), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		go ask()
		synctest.Wait()
		if n := len(r.runtime.locations); n != 2 {
			t.Errorf("%d checkpoints run, want 2", n)
		}
		close(r.runtime.checkpointing)
		for range 2 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
	})
}
