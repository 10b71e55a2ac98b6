package peer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/testkit/grpctest"
	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
)

// podsync sends frames, one for each stream; the stream ends with its frame.
type podsync struct {
	podsyncv1.UnimplementedPodSyncServiceServer
	frames []*podsyncv1.WatchContainersResponse
	usage  *podsyncv1.ListFilesystemUsageResponse
}

func (p *podsync) WatchContainers(_ *podsyncv1.WatchContainersRequest, stream grpc.ServerStreamingServer[podsyncv1.WatchContainersResponse]) error {
	if len(p.frames) == 0 {
		<-stream.Context().Done()
		return nil
	}
	frame := p.frames[0]
	p.frames = p.frames[1:]
	return stream.Send(frame)
}

func (p *podsync) ListFilesystemUsage(context.Context, *podsyncv1.ListFilesystemUsageRequest) (*podsyncv1.ListFilesystemUsageResponse, error) {
	return p.usage, nil
}

func (p *podsync) GetVolumeUsage(_ context.Context, r *podsyncv1.GetVolumeUsageRequest) (*podsyncv1.GetVolumeUsageResponse, error) {
	switch r.GetVolume() {
	case "away":
		return nil, status.Error(codes.Unavailable, "restarted")
	case "slow":
		return nil, status.Error(codes.DeadlineExceeded, "restarted")
	case "gone":
		return nil, status.Error(codes.NotFound, "no quota")
	}
	resp := &podsyncv1.GetVolumeUsageResponse{Driver: r.GetPodUid() + "/" + r.GetVolume(), AvailableBytes: 1, CapacityBytes: 2, UsedBytes: 3, InodesFree: 4, Inodes: 5, InodesUsed: 6}
	if r.GetVolume() == "ill" {
		resp.Condition = &podsyncv1.VolumeCondition{Abnormal: true}
	}
	return resp, nil
}

func TestTheUsageOfADriversVolumeIsTakenAsItIsSaid(t *testing.T) {
	p := serve(t, &podsync{})
	got, err := p.VolumeUsage(t.Context(), disk.Volume{PodUID: "u", Name: "v"})
	if err != nil || got.Driver != "u/v" || got.Filesystem.Available != 1 || got.Filesystem.Capacity != 2 || got.Bytes != 3 ||
		got.Filesystem.InodesFree != 4 || got.Filesystem.Inodes != 5 || got.Inodes != 6 || got.Abnormal != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = p.VolumeUsage(t.Context(), disk.Volume{PodUID: "u", Name: "ill"}); err != nil || got.Abnormal == nil || !*got.Abnormal {
		t.Errorf("of one that is not well: %+v, %v", got, err)
	}
}

func TestWhatAFilesystemCountsIsTakenAsItIsSaidAndAPodsyncThatIsAwayIsNotOneThatHasNone(t *testing.T) {
	p := serve(t, &podsync{})
	if got, err := p.VolumeCount(t.Context(), disk.Volume{PodUID: "u", Name: "v"}); err != nil || got != (disk.Tree{Bytes: 3, Inodes: 6}) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, away := range map[string]bool{"away": true, "slow": true, "gone": false} {
		if got, err := p.VolumeCount(t.Context(), disk.Volume{PodUID: "u", Name: name}); err == nil || errors.Is(err, disk.ErrAway) != away {
			t.Errorf("of %s: %+v, %v", name, got, err)
		}
	}
}

func serve(t *testing.T, p *podsync) *Podsync {
	t.Helper()
	return NewPodsync(grpctest.Serve(t, func(s *grpc.Server) { podsyncv1.RegisterPodSyncServiceServer(s, p) }), health.Discard())
}

func TestAStreamThatEndsLeavesTheTableUntilTheNextSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ref := &podsyncv1.PodRef{Namespace: "ns", Name: "pod", Uid: "u"}
		p := serve(t, &podsync{frames: []*podsyncv1.WatchContainersResponse{
			{Epoch: 1, Revision: 1, Snapshot: true, PodsCgroup: "/kubepods", Sandboxes: []*podsyncv1.Sandbox{{Id: "s1", Pod: ref}}},
			{Epoch: 2, Revision: 1, Snapshot: true, Sandboxes: []*podsyncv1.Sandbox{{Id: "s2", Pod: ref, Ready: true}}},
		}})
		ctx, cancel := context.WithCancel(t.Context())
		var table inventory.Table
		done := make(chan error, 1)
		go func() { done <- p.Follow(ctx, &table) }()
		synctest.Wait()
		if view := table.View(); len(view.Sandboxes) != 1 || view.Sandboxes["s1"].Pod != (inventory.Pod{Namespace: "ns", Name: "pod", UID: "u"}) || view.PodsCgroup != "/kubepods" {
			t.Errorf("after the first stream: %+v", view)
		}
		time.Sleep(time.Second) // Virtual: the stream is opened again.
		synctest.Wait()
		if view := table.View(); len(view.Sandboxes) != 1 || !view.Sandboxes["s2"].Ready {
			t.Errorf("after the second: %+v", view)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestEachContainerHasItsNamesAndPlaces(t *testing.T) {
	at := time.Unix(1000, 0).UTC()
	ref, pod := &podsyncv1.PodRef{Namespace: "ns", Name: "pod", Uid: "u"}, inventory.Pod{Namespace: "ns", Name: "pod", UID: "u"}
	got := change(&podsyncv1.WatchContainersResponse{
		RemovedIds: []string{"gone"}, RemovedVolumePodUids: []string{"w"},
		Sandboxes: []*podsyncv1.Sandbox{{Id: "s", Pod: ref, Attempt: 1, CreateTime: timestamppb.New(at), CgroupParent: "/kubepods/podu"}},
		Containers: []*podsyncv1.Container{
			{Id: "c", SandboxId: "s", Pod: ref, Name: "web", Attempt: 2, Image: "app", State: podsyncv1.ContainerState_CONTAINER_STATE_RUNNING, StartTime: timestamppb.New(at), LogDir: "/logs"},
			{Id: "d", State: podsyncv1.ContainerState_CONTAINER_STATE_EXITED, StartTime: &timestamppb.Timestamp{}},
		},
		Volumes: []*podsyncv1.PodVolumes{{Pod: ref, Volumes: []*podsyncv1.Volume{{Name: "v", HostPath: "/v", Ephemeral: true, InMemory: true, PvcName: "claim"}, {Name: "d", Driven: true}, {Name: "e", Counted: true}}}},
	})
	want := inventory.Change{
		RemovedIDs: []string{"gone"}, RemovedVolumes: []string{"w"},
		Sandboxes: []inventory.Sandbox{{ID: "s", Pod: pod, Attempt: 1, CreateTime: at, CgroupParent: "/kubepods/podu"}},
		Containers: []inventory.Container{
			{ID: "c", SandboxID: "s", Pod: pod, Name: "web", Attempt: 2, Image: "app", Running: true, StartTime: at, LogDir: "/logs"},
			{ID: "d", Ended: true}, // It never started: the first second of 1970 is no time.
		},
		Volumes: []inventory.PodVolumes{{Pod: pod, Volumes: []inventory.Volume{{Name: "v", HostPath: "/v", Ephemeral: true, InMemory: true, PVC: "claim"}, {Name: "d", Driven: true}, {Name: "e", Counted: true}}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUsageWithoutATimeIsOfNowButOfALayerItIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Unix(1000, 0).UTC()
		got, err := serve(t, &podsync{usage: &podsyncv1.ListFilesystemUsageResponse{
			WritableLayers: []*podsyncv1.WritableLayer{
				{ContainerId: "c", Usage: &podsyncv1.FilesystemUsage{UsedBytes: 7, InodesUsed: 2, Time: timestamppb.New(at)}},
				{ContainerId: "not weighed yet", Usage: &podsyncv1.FilesystemUsage{}},
			},
			ImageFilesystems: []*podsyncv1.FilesystemUsage{{Mountpoint: "/images", UsedBytes: 9}},
			SandboxImage:     "pause",
		}}).FilesystemUsage(t.Context())
		want := disk.RuntimeUsage{
			Layers:     map[string]disk.Usage{"c": {Bytes: 7, Inodes: 2, Time: at}, "not weighed yet": {}},
			Images:     []disk.Usage{{Mountpoint: "/images", Bytes: 9, Time: time.Now()}},
			Containers: []disk.Usage{}, SandboxImage: "pause",
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(diff, err)
		}
	})
}
