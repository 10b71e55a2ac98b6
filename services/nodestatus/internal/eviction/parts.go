package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// partsTold is how many of a pod's directories Parts names.
const partsTold = 3

// Parts says in which directories of its own a pod has the most, by its figures: of one that has ended
// nobody can look any more. Empty when nothing is known.
func Parts(pod *v1.Pod, s *statsapi.PodStats) string {
	if s == nil {
		return ""
	}
	type part struct {
		name string
		used int64
	}
	var all []part
	add := func(f *statsapi.FsStats, what, name string) {
		if n := used(v1.ResourceEphemeralStorage, f); n > 0 {
			all = append(all, part{fmt.Sprintf("%s %s has %s", what, name, bytes(n)), n})
		}
	}
	for i := range s.VolumeStats {
		if v := &s.VolumeStats[i]; summed(pod, v.Name) {
			add(&v.FsStats, "volume", v.Name)
		}
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		if c.Name == "" {
			continue // an earlier run of one, which counts for no limit
		}
		add(c.Logs, "the log of container", c.Name)
		add(c.Rootfs, "the writable layer of container", c.Name)
	}
	slices.SortStableFunc(all, func(a, b part) int { return cmp.Compare(b.used, a.used) })
	var texts []string
	for _, p := range all[:min(len(all), partsTold)] {
		texts = append(texts, p.name)
	}
	if more := len(all) - partsTold; more > 0 {
		texts = append(texts, fmt.Sprintf("and less in %d more", more))
	}
	return strings.Join(texts, ", ")
}
