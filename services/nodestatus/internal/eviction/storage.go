package eviction

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
)

// parts are what of a pod is on a filesystem.
type parts struct{ layers, logs, volumes bool }

// partsOf says what of pods counts for the signal of a filesystem.
func partsOf(signal string, layout threshold.Layout) parts {
	ofNode, ofImages := strings.HasPrefix(signal, "nodefs."), strings.HasPrefix(signal, "imagefs.")
	switch {
	case layout.ImagesApart && !layout.ContainersApart:
		return parts{layers: !ofNode, logs: ofNode, volumes: ofNode}
	case layout.ImagesApart && ofImages:
		return parts{} // Nothing of pods is there, only images.
	}
	return parts{layers: true, logs: true, volumes: true}
}

// storage is what a pod has on a filesystem, in bytes or inodes.
func storage(p parts, name v1.ResourceName, pod *v1.Pod, s *statsapi.PodStats) int64 {
	var sum int64
	for i := range s.Containers {
		if p.layers {
			sum += used(name, s.Containers[i].Rootfs)
		}
		if p.logs {
			sum += used(name, s.Containers[i].Logs)
		}
	}
	if !p.volumes {
		return sum
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; local(v) {
			sum += used(name, volume(s, v.Name))
		}
	}
	return sum
}

// local says whether what is in a volume lies on the node's own disk.
func local(v *v1.Volume) bool {
	return v.HostPath != nil || v.GitRepo != nil || v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}

// volume is what was measured of a volume; nil when nothing was.
func volume(s *statsapi.PodStats, name string) *statsapi.FsStats {
	for i := range s.VolumeStats {
		if s.VolumeStats[i].Name == name {
			return &s.VolumeStats[i].FsStats
		}
	}
	return nil
}

// used is how much there is, in bytes or inodes, at most what the whole filesystem has.
// Who has more by its directories has files that share their blocks (reflinks of XFS and
// btrfs), which count once for each: that may not hide what it uses.
func used(name v1.ResourceName, f *statsapi.FsStats) int64 {
	switch {
	case f == nil:
		return 0
	case name == inodes:
		return atMost(f.InodesUsed, f.Inodes)
	}
	return atMost(f.UsedBytes, f.CapacityBytes)
}

func atMost(used, capacity *uint64) int64 {
	switch {
	case used == nil:
		return 0
	case capacity != nil && *capacity > 0:
		return whole(min(*used, *capacity))
	}
	return whole(*used)
}
