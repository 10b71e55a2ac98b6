package eviction

import (
	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// LeastFigures are a pod's second figures, in which no directory has more than in the first: what
// was moved from one to another between two looks counts in neither. The pod's ephemeral storage is
// less by what its parts are: others may fill a claim, and what grows in memory is no part of it.
// nil of nil, and the second alone if there is no first. Neither is changed.
func LeastFigures(pod *v1.Pod, first, second *statsapi.PodStats) *statsapi.PodStats {
	if first == nil || second == nil {
		return second
	}
	out, less, apart := *second, uint64(0), uint64(0)
	volumes := map[string]*statsapi.FsStats{}
	for i := range first.VolumeStats {
		volumes[first.VolumeStats[i].Name] = &first.VolumeStats[i].FsStats
	}
	out.VolumeStats = append([]statsapi.VolumeStats(nil), second.VolumeStats...)
	for i := range out.VolumeStats {
		v := &out.VolumeStats[i]
		by := &apart
		if summed(pod, v.Name) {
			by = &less
		}
		leastOf(volumes[v.Name], &v.FsStats, by)
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

// summed says whether a volume is part of its pod's ephemeral storage; one that the pod does not name
// might be.
func summed(pod *v1.Pod, name string) bool {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == name {
			return v.ConfigMap != nil || v.DownwardAPI != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
		}
	}
	return true
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
