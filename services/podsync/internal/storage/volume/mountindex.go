package volume

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// mountIndex is what a pod's containers mount, by volume and in the order of the paths:
// a spec has room for tens of thousands of both volumes and mounts, and each mount is
// looked at for the volumes that it lies in, not for all.
type mountIndex struct {
	pod        *v1.Pod
	files      map[string]bool // see hostFiles
	containers []containerMounts
	// whole are the containers that mount all of a volume, by the volume.
	whole map[string][]int
}

// containerMounts are the mounts of a container, sorted by their paths.
type containerMounts struct {
	name   string
	mounts []v1.VolumeMount
	paths  []string // clean, of each
	// whole are the mounts of all of a volume, by the volume.
	whole map[string][]int
}

// indexMounts makes the index of a pod's mounts.
func indexMounts(pod *v1.Pod) *mountIndex {
	x := &mountIndex{pod: pod, files: hostFiles(pod), whole: map[string][]int{}}
	for _, c := range podutil.Containers(pod) {
		of := indexContainer(c)
		for volume := range of.whole {
			x.whole[volume] = append(x.whole[volume], len(x.containers))
		}
		x.containers = append(x.containers, of)
	}
	return x
}

func indexContainer(c *v1.Container) containerMounts {
	type mount struct {
		at    string
		which int
	}
	sorted := make([]mount, len(c.VolumeMounts))
	for i := range c.VolumeMounts {
		sorted[i] = mount{path.Clean("/" + c.VolumeMounts[i].MountPath), i}
	}
	slices.SortStableFunc(sorted, func(a, b mount) int { return byElements(a.at, b.at) })
	out := containerMounts{name: c.Name, whole: map[string][]int{}}
	for i, one := range sorted {
		m := c.VolumeMounts[one.which]
		out.mounts, out.paths = append(out.mounts, m), append(out.paths, one.at)
		if m.SubPath == "" && m.SubPathExpr == "" {
			out.whole[m.Name] = append(out.whole[m.Name], i)
		}
	}
	return out
}

// beneath are the mounts of all of a volume, and those that lie beneath them.
func (c *containerMounts) beneath(volume string) (list []v1.VolumeMount) {
	end := 0
	for _, i := range c.whole[volume] {
		if i < end {
			continue // beneath the one before
		}
		at := c.paths[i]
		end = i + 1
		for at != "/" && end < len(c.paths) && (c.paths[end] == at || strings.HasPrefix(c.paths[end], at+"/")) {
			end++ // beneath a container's own root nothing is made
		}
		list = append(list, c.mounts[i:end]...)
	}
	return list
}
