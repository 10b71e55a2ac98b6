package summary

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
)

// shown is a filesystem with what somebody uses of it.
func shown(f disk.Filesystem, at time.Time, bytes, inodes uint64) *statsapi.FsStats {
	return &statsapi.FsStats{
		Time: metav1.NewTime(at), AvailableBytes: &f.Available, CapacityBytes: &f.Capacity, UsedBytes: &bytes,
		InodesFree: &f.InodesFree, Inodes: &f.Inodes, InodesUsed: &inodes,
	}
}

func filesystem(f disk.Filesystem) *statsapi.FsStats {
	return shown(f, f.Time, f.Used(), f.InodesUsed())
}

// runtimeFilesystem is of when it was measured what is left: that is acted upon. What the
// runtime uses of it may be older.
func runtimeFilesystem(f *RuntimeFilesystem) *statsapi.FsStats {
	if f == nil {
		return nil
	}
	return shown(f.Filesystem, f.Filesystem.Time, f.Usage.Bytes, f.Usage.Inodes)
}

// rootfs is a container's writable layer.
func (b *builder) rootfs(id string) *statsapi.FsStats {
	layer, ok := b.Disk.Layers[id]
	fs := b.Disk.Container
	if !ok || fs == nil {
		return nil
	}
	return shown(fs.Filesystem, layer.Time, layer.Bytes, layer.Inodes)
}

// directory is a measured directory; nil when it was not measured yet.
func (b *builder) directory(path string) *statsapi.FsStats {
	d, ok := b.Disk.Directories[path]
	if !ok || path == "" {
		return nil
	}
	return shown(d.Filesystem, d.Time, d.Bytes, d.Inodes)
}

// driven is a volume that its driver has measured; nil when it was not yet.
func (b *builder) driven(v disk.Volume) (*statsapi.FsStats, *statsapi.VolumeHealthStats) {
	d, ok := b.Disk.Driven[v]
	if !ok {
		return nil, nil
	}
	var health *statsapi.VolumeHealthStats
	if d.Abnormal != nil {
		health = &statsapi.VolumeHealthStats{Abnormal: *d.Abnormal}
	}
	return shown(d.Filesystem, d.Time, d.Bytes, d.Inodes), health
}

// total is what a pod has on disks.
type total struct{ bytes, inodes uint64 }

// add adds what was measured of one thing; nil is nothing. Of what is partly known nobody
// knows when it had that, and what has been moved from it since would count twice: it is no
// less than one of these.
func (t *total) add(s *statsapi.FsStats, partly *total) {
	switch {
	case s == nil:
	case partly != nil:
		partly.bytes, partly.inodes = max(partly.bytes, *s.UsedBytes), max(partly.inodes, *s.InodesUsed)
	default:
		t.bytes, t.inodes = t.bytes+*s.UsedBytes, t.inodes+*s.InodesUsed
	}
}

// storage adds a pod's volumes and the sum of its ephemeral storage.
func (b *builder) storage(p inventory.PresentPod, out *statsapi.PodStats) {
	var sum, partly total
	count := func(s *statsapi.FsStats, path string) {
		if b.Disk.Directories[path].Partly {
			sum.add(s, &partly)
		} else {
			sum.add(s, nil)
		}
	}
	for i := range out.Containers {
		count(out.Containers[i].Rootfs, "")
		count(out.Containers[i].Logs, "")
	}
	for _, v := range p.Volumes {
		s := b.directory(v.HostPath)
		var health *statsapi.VolumeHealthStats
		if v.Driven {
			s, health = b.driven(disk.Volume{PodUID: p.Sandbox.Pod.UID, Name: v.Name})
		}
		if s == nil {
			continue
		}
		volume := statsapi.VolumeStats{Name: v.Name, FsStats: *s, VolumeHealthStats: health}
		if v.PVC != "" {
			volume.PVCRef = &statsapi.PVCReference{Name: v.PVC, Namespace: p.Sandbox.Pod.Namespace}
		}
		out.VolumeStats = append(out.VolumeStats, volume)
		if v.Ephemeral && !v.InMemory {
			count(s, v.HostPath)
		}
	}
	for _, path := range b.Disk.Own[p.Sandbox.Pod.UID] {
		count(b.directory(path), path)
	}
	out.EphemeralStorage = shown(b.Disk.Root, b.Disk.Time, max(sum.bytes, partly.bytes), max(sum.inodes, partly.inodes))
}
