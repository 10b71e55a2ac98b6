package eviction

import (
	"time"

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
	out.Containers = leastOfContainers(first.Containers, second.Containers, true, &less)
	out.EphemeralStorage = without(second.EphemeralStorage, less)
	return &out
}

// LeastLayers are a pod's second figures, in which no layer has more than in the first; else as
// LeastFigures.
func LeastLayers(first, second *statsapi.PodStats) *statsapi.PodStats {
	if first == nil || second == nil {
		return second
	}
	out, less := *second, uint64(0)
	out.Containers = leastOfContainers(first.Containers, second.Containers, false, &less)
	out.EphemeralStorage = without(second.EphemeralStorage, less)
	return &out
}

// leastOfContainers takes layers and, if they are to be, logs down to what there was. What has no name is
// of a container's earlier runs, and is in no sum.
func leastOfContainers(first, second []statsapi.ContainerStats, logs bool, less *uint64) []statsapi.ContainerStats {
	before := map[string]*statsapi.ContainerStats{}
	for i := range first {
		before[first[i].Name] = &first[i]
	}
	out := append([]statsapi.ContainerStats(nil), second...)
	for i := range out {
		c := &out[i]
		was := before[c.Name]
		if was == nil || c.Name == "" {
			continue
		}
		if c.Rootfs = leastCopy(was.Rootfs, c.Rootfs, less); logs {
			c.Logs = leastCopy(was.Logs, c.Logs, less)
		}
	}
	return out
}

// without is a pod's ephemeral storage less so much.
func without(all *statsapi.FsStats, less uint64) *statsapi.FsStats {
	if all == nil || all.UsedBytes == nil {
		return all
	}
	out := *all
	left := *all.UsedBytes - min(*all.UsedBytes, less)
	out.UsedBytes = &left
	return &out
}

// LayersSince are a pod's figures in which the layers that were not weighed since a time have nothing:
// in a sum with what was measured later, what was moved out of one would count twice. That of a
// container that has ended may be as old as its end, unless stats says that layers are late: it may be
// of before. nil of nil; the figures are not changed. whole: no layer was left out.
func LayersSince(s *statsapi.PodStats, since time.Time, late bool) (_ *statsapi.PodStats, whole bool) {
	if s == nil {
		return nil, true
	}
	out, less, none := *s, uint64(0), uint64(0)
	out.Containers = append([]statsapi.ContainerStats(nil), s.Containers...)
	for i := range out.Containers {
		if c := &out.Containers[i]; c.Name != "" && olderLayer(c, since, late) {
			c.Rootfs = leastCopy(&statsapi.FsStats{UsedBytes: &none}, c.Rootfs, &less)
		}
	}
	out.EphemeralStorage = without(s.EphemeralStorage, less)
	return &out, less == 0
}

// olderLayer says whether a container's layer may have changed since it was weighed, which was before
// a time; also: of one that has ended, too. Times of figures are to the second.
func olderLayer(c *statsapi.ContainerStats, since time.Time, also bool) bool {
	f := c.Rootfs
	return f != nil && (also || !ended(c)) && !f.Time.IsZero() && f.Time.Time.Before(since.Truncate(time.Second))
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
