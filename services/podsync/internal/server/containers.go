package server

import (
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

// WatchContainers implements PodSyncService.
func (s *Server) WatchContainers(_ *podsyncv1.WatchContainersRequest, stream grpc.ServerStreamingServer[podsyncv1.WatchContainersResponse]) error {
	ctx := stream.Context()
	select { // The first frame replaces all that the caller knows of a run before this one.
	case <-ctx.Done():
		return ctx.Err()
	case <-s.deps.Table.Whole():
	}
	sub := s.deps.Table.Subscribe(ctx)
	defer sub.Close()
	for {
		frame, err := sub.Next(ctx)
		if err != nil {
			return ctx.Err()
		}
		if err := stream.Send(containersFrame(frame)); err != nil {
			return err
		}
	}
}

func containersFrame(frame watch.Frame[podcache.EntryKey, podcache.Entry]) *podsyncv1.WatchContainersResponse {
	resp := &podsyncv1.WatchContainersResponse{Epoch: frame.Epoch, Revision: frame.Revision, Snapshot: frame.Snapshot}
	for _, entry := range frame.Changed {
		switch {
		case entry.PodsCgroup != "":
			resp.PodsCgroup = entry.PodsCgroup
		case entry.Sandbox != nil:
			resp.Sandboxes = append(resp.Sandboxes, sandboxMessage(entry.Sandbox))
		case entry.Container != nil:
			resp.Containers = append(resp.Containers, containerMessage(entry.Container))
		case entry.Volumes != nil:
			resp.Volumes = append(resp.Volumes, volumesMessage(entry.Volumes))
		}
	}
	for _, key := range frame.Removed {
		if key.VolumesUID != "" {
			resp.RemovedVolumePodUids = append(resp.RemovedVolumePodUids, string(key.VolumesUID))
			continue
		}
		resp.RemovedIds = append(resp.RemovedIds, key.ID)
	}
	return resp
}

func sandboxMessage(s *podstate.SandboxRow) *podsyncv1.Sandbox {
	return &podsyncv1.Sandbox{
		Id: s.ID, Pod: refOf(s.UID, s.Namespace, s.Name), Attempt: s.Attempt, Ready: s.Ready,
		CreateTime: stamp(s.CreatedAt), CgroupParent: s.CgroupParent, NetworkNamespacePath: s.NetworkNamespace,
	}
}

func containerMessage(c *podstate.ContainerRow) *podsyncv1.Container {
	m := &podsyncv1.Container{
		Id: c.ID, SandboxId: c.SandboxID, Pod: refOf(c.UID, c.Namespace, c.PodName), Name: c.Name, Attempt: c.Attempt,
		Image: c.Image, State: stateMessage(c.State), StartTime: stamp(c.StartedAt),
	}
	if c.LogPath != "" {
		m.LogDir = filepath.Dir(c.LogPath)
	}
	return m
}

func stateMessage(s podstate.ContainerState) podsyncv1.ContainerState {
	switch s {
	case podstate.StateCreated:
		return podsyncv1.ContainerState_CONTAINER_STATE_CREATED
	case podstate.StateRunning:
		return podsyncv1.ContainerState_CONTAINER_STATE_RUNNING
	case podstate.StateExited:
		return podsyncv1.ContainerState_CONTAINER_STATE_EXITED
	default:
		return podsyncv1.ContainerState_CONTAINER_STATE_UNKNOWN
	}
}

func volumesMessage(v *podcache.Volumes) *podsyncv1.PodVolumes {
	m := &podsyncv1.PodVolumes{Pod: refOf(v.UID, v.Namespace, v.Name)}
	for _, one := range v.Volumes {
		shown := &podsyncv1.Volume{Name: one.Name, HostPath: one.HostPath, Ephemeral: one.Ephemeral, InMemory: one.InMemory, PvcName: one.PVC, Driven: one.Driven, Counted: one.Counted}
		if one.Driven {
			shown.HostPath = "" // whoever does not know the field must not touch its mount
		}
		m.Volumes = append(m.Volumes, shown)
	}
	return m
}

// stamp is nil for the zero time: unset, not 1970.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
