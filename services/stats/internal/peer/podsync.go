// Package peer is stats' side of podsync's API: it turns what podsync sends
// into stats' own types. It must never measure or decide anything.
package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
)

// Podsync asks podsync.
type Podsync struct {
	client podsyncv1.PodSyncServiceClient
	health health.Reporter
}

// NewPodsync returns a client on a connection to podsync.
func NewPodsync(conn grpc.ClientConnInterface, reporter health.Reporter) *Podsync {
	return &Podsync{client: podsyncv1.NewPodSyncServiceClient(conn), health: reporter}
}

// Follow keeps a table as podsync's until ctx is done. While podsync is away
// the table stays as it was last.
func (p *Podsync) Follow(ctx context.Context, table *inventory.Table) error {
	return watch.Follow(ctx, watch.Follower[*podsyncv1.WatchContainersResponse]{
		Name:   service.Podsync,
		Health: p.health,
		Connect: func(ctx context.Context) (func() (*podsyncv1.WatchContainersResponse, error), error) {
			stream, err := p.client.WatchContainers(ctx, &podsyncv1.WatchContainersRequest{})
			if err != nil {
				return nil, fmt.Errorf("watch podsync's containers (names stay as they were): %w", err)
			}
			return stream.Recv, nil
		},
		Header: func(f *podsyncv1.WatchContainersResponse) watch.Header {
			return watch.Header{Epoch: f.GetEpoch(), Revision: f.GetRevision(), Snapshot: f.GetSnapshot()}
		},
		Handle: func(_ context.Context, f *podsyncv1.WatchContainersResponse) error {
			table.Apply(change(f))
			return nil
		},
	})
}

// FilesystemUsage asks for writable layers and image filesystems.
func (p *Podsync) FilesystemUsage(ctx context.Context) (disk.RuntimeUsage, error) {
	r, err := p.client.ListFilesystemUsage(ctx, &podsyncv1.ListFilesystemUsageRequest{})
	if err != nil {
		return disk.RuntimeUsage{}, fmt.Errorf("ask podsync for the runtime's filesystem usage: %w", err)
	}
	out := disk.RuntimeUsage{
		Layers:     make(map[string]disk.Usage, len(r.GetWritableLayers())),
		Images:     usages(r.GetImageFilesystems()),
		Containers: usages(r.GetContainerFilesystems()), SandboxImage: r.GetSandboxImage(),
	}
	for _, layer := range r.GetWritableLayers() {
		u := usage(layer.GetUsage())
		if !timed(layer.GetUsage()) {
			u.Time = time.Time{} // containerd says 0 bytes of one that it has not weighed yet.
		}
		out.Layers[layer.GetContainerId()] = u
	}
	return out, nil
}

// VolumeUsage asks for how full a volume is that only its driver can measure.
func (p *Podsync) VolumeUsage(ctx context.Context, v disk.Volume) (disk.Driven, error) {
	r, err := p.client.GetVolumeUsage(ctx, &podsyncv1.GetVolumeUsageRequest{PodUid: v.PodUID, Volume: v.Name})
	if err != nil {
		return disk.Driven{}, fmt.Errorf("ask podsync for the usage of volume %s of the pod with UID %s: %w", v.Name, v.PodUID, err)
	}
	out := disk.Driven{Driver: r.GetDriver(), Measured: disk.Measured{
		Time: time.Now(), Tree: disk.Tree{Bytes: r.GetUsedBytes(), Inodes: r.GetInodesUsed()},
		Filesystem: disk.Filesystem{
			Time: time.Now(), Capacity: r.GetCapacityBytes(), Available: r.GetAvailableBytes(), Inodes: r.GetInodes(), InodesFree: r.GetInodesFree(),
		},
	}}
	if c := r.GetCondition(); c != nil {
		abnormal := c.GetAbnormal()
		out.Abnormal = &abnormal
	}
	return out, nil
}

// VolumeCount asks for what a volume's filesystem counts in it.
func (p *Podsync) VolumeCount(ctx context.Context, v disk.Volume) (disk.Tree, error) {
	got, err := p.VolumeUsage(ctx, v)
	if err = rpcerr.FromStatus(err); errors.Is(err, rpcerr.ErrUnavailable) || errors.Is(err, rpcerr.ErrTimeout) {
		err = fmt.Errorf("%w: %w", disk.ErrAway, err)
	}
	return got.Tree, err
}

func usages(in []*podsyncv1.FilesystemUsage) []disk.Usage {
	out := make([]disk.Usage, 0, len(in))
	for _, u := range in {
		out = append(out, usage(u))
	}
	return out
}

func usage(u *podsyncv1.FilesystemUsage) disk.Usage {
	out := disk.Usage{Mountpoint: u.GetMountpoint(), Bytes: u.GetUsedBytes(), Inodes: u.GetInodesUsed(), Time: time.Now()}
	if timed(u) {
		out.Time = u.GetTime().AsTime()
	}
	return out
}

func timed(u *podsyncv1.FilesystemUsage) bool {
	return u.GetTime().IsValid() && u.GetTime().GetSeconds() > 0
}

func change(f *podsyncv1.WatchContainersResponse) inventory.Change {
	out := inventory.Change{Snapshot: f.GetSnapshot(), Epoch: f.GetEpoch(), RemovedIDs: f.GetRemovedIds(), RemovedVolumes: f.GetRemovedVolumePodUids(), PodsCgroup: f.GetPodsCgroup()}
	for _, s := range f.GetSandboxes() {
		sandbox := inventory.Sandbox{ID: s.GetId(), Pod: pod(s.GetPod()), Attempt: s.GetAttempt(), Ready: s.GetReady(), CgroupParent: s.GetCgroupParent()}
		if t := s.GetCreateTime(); t.IsValid() {
			sandbox.CreateTime = t.AsTime()
		}
		out.Sandboxes = append(out.Sandboxes, sandbox)
	}
	for _, c := range f.GetContainers() {
		container := inventory.Container{
			ID: c.GetId(), SandboxID: c.GetSandboxId(), Pod: pod(c.GetPod()), Name: c.GetName(), Attempt: c.GetAttempt(),
			Image: c.GetImage(), Running: c.GetState() == podsyncv1.ContainerState_CONTAINER_STATE_RUNNING,
			Ended: c.GetState() == podsyncv1.ContainerState_CONTAINER_STATE_EXITED, LogDir: c.GetLogDir(),
		}
		if t := c.GetStartTime(); t.IsValid() && t.GetSeconds() > 0 {
			container.StartTime = t.AsTime()
		}
		out.Containers = append(out.Containers, container)
	}
	for _, v := range f.GetVolumes() {
		volumes := inventory.PodVolumes{Pod: pod(v.GetPod())}
		for _, volume := range v.GetVolumes() {
			volumes.Volumes = append(volumes.Volumes, inventory.Volume{
				Name: volume.GetName(), HostPath: volume.GetHostPath(), Ephemeral: volume.GetEphemeral(),
				InMemory: volume.GetInMemory(), PVC: volume.GetPvcName(), Driven: volume.GetDriven(), Counted: volume.GetCounted(),
			})
		}
		out.Volumes = append(out.Volumes, volumes)
	}
	return out
}

func pod(p *podsyncv1.PodRef) inventory.Pod {
	return inventory.Pod{Namespace: p.GetNamespace(), Name: p.GetName(), UID: p.GetUid()}
}
