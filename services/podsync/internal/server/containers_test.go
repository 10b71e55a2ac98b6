package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

func TestContainersComeAsASnapshotAndThenChanges(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		r.table.SetWhole()
		r.table.SetVolumes(podcache.Volumes{UID: "u", Volumes: []podcache.Volume{{Name: "v", HostPath: "/v", Ephemeral: true}}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.client.WatchContainers(ctx, &podsyncv1.WatchContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		first, err := stream.Recv()
		if err != nil || !first.GetSnapshot() || first.GetEpoch() != 7 || len(first.GetSandboxes()) != 1 || len(first.GetVolumes()) != 1 {
			t.Fatalf("frame %v, error %v", first, err)
		}
		if c := first.GetContainers()[0]; c.GetId() != "c1" || c.GetLogDir() != "/logs/ns_p_u/c" || c.GetState() != podsyncv1.ContainerState_CONTAINER_STATE_RUNNING || c.GetPod().GetName() != "p" {
			t.Fatalf("container %v", c)
		}
		r.table.SetPodsCgroup("/kubepods.slice")
		if frame, err := stream.Recv(); err != nil || frame.GetSnapshot() || frame.GetPodsCgroup() != "/kubepods.slice" {
			t.Fatalf("frame %v, error %v", frame, err)
		}
		r.table.SetPod("u", nil, nil)
		r.table.SetVolumes(podcache.Volumes{UID: "u"})
		for gone := 0; gone < 3; {
			frame, err := stream.Recv()
			if err != nil || frame.GetSnapshot() {
				t.Fatalf("frame %v, error %v", frame, err)
			}
			gone += len(frame.GetRemovedIds()) + len(frame.GetRemovedVolumePodUids())
		}
	})
}

func TestNothingIsSaidOfContainersBeforeAllThatTheRuntimeHasIsKnown(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.client.WatchContainers(ctx, &podsyncv1.WatchContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		frames := make(chan *podsyncv1.WatchContainersResponse, 1)
		go func() {
			if frame, err := stream.Recv(); err == nil {
				frames <- frame
			}
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(frames) > 0 {
			t.Fatalf("said too early: %v", <-frames)
		}
		r.addRunning()
		r.table.SetWhole()
		synctest.Wait()
		if len(frames) == 0 {
			t.Fatal("nothing is said")
		}
		if first := <-frames; !first.GetSnapshot() || len(first.GetSandboxes()) != 1 {
			t.Fatalf("frame %v", first)
		}
	})
}

func TestWhatRunsIsFoundThoughTheRuntimeWasNotLookedAtYet(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		pod, ok := r.pods.Get("u")
		if !ok {
			t.Fatal("no pod")
		}
		r.table.SetPod("u", nil, nil)
		time.AfterFunc(time.Second, func() {
			r.addRunning()
			r.table.SetWhole()
		})
		if c, err := r.server.running(t.Context(), pod, "c"); err != nil || c.ID != "c1" {
			t.Errorf("%+v, %v", c, err)
		}
		began := time.Now()
		if _, err := r.server.running(t.Context(), pod, "other"); err == nil || time.Since(began) > 0 {
			t.Errorf("of one that does not run: %v after %s", err, time.Since(began))
		}
	})
}
