package eviction

import (
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// LeastFigures are a pod's second figures, in which no directory has more than in the first: what
// was moved from one to another between two looks counts in neither. nil of nil, and the second
// alone if there is no first. Neither is changed.
func LeastFigures(first, second *statsapi.PodStats) *statsapi.PodStats {
	if first == nil || second == nil {
		return second
	}
	out, less := *second, uint64(0)
	volumes := map[string]*statsapi.FsStats{}
	for i := range first.VolumeStats {
		volumes[first.VolumeStats[i].Name] = &first.VolumeStats[i].FsStats
	}
	out.VolumeStats = append([]statsapi.VolumeStats(nil), second.VolumeStats...)
	for i := range out.VolumeStats {
		v := &out.VolumeStats[i]
		leastOf(volumes[v.Name], &v.FsStats, &less)
	}
	containers := map[string]*statsapi.ContainerStats{}
	for i := range first.Containers {
		containers[first.Containers[i].Name] = &first.Containers[i]
	}
	out.Containers = append([]statsapi.ContainerStats(nil), second.Containers...)
	for i := range out.Containers {
		c := &out.Containers[i]
		was := containers[c.Name]
		if was == nil {
			continue
		}
		c.Rootfs, c.Logs = leastCopy(was.Rootfs, c.Rootfs, &less), leastCopy(was.Logs, c.Logs, &less)
	}
	if e := second.EphemeralStorage; e != nil && e.UsedBytes != nil {
		all := *e
		left := *e.UsedBytes - min(*e.UsedBytes, less)
		all.UsedBytes, out.EphemeralStorage = &left, &all
	}
	return &out
}

func leastCopy(was, is *statsapi.FsStats, less *uint64) *statsapi.FsStats {
	if is == nil {
		return nil
	}
	out := *is
	leastOf(was, &out, less)
	return &out
}

// leastOf takes what there is down to what there was, and adds the difference to less.
func leastOf(was, is *statsapi.FsStats, less *uint64) {
	if was == nil || was.UsedBytes == nil || is.UsedBytes == nil || *was.UsedBytes >= *is.UsedBytes {
		return
	}
	*less += *is.UsedBytes - *was.UsedBytes
	n := *was.UsedBytes
	is.UsedBytes = &n
}
