package volume

import (
	"context"
	"fmt"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
)

// emptyDirMode lets every user of the pod write.
const emptyDirMode = 0o777

// emptyDirs are the pods' own directories.
type emptyDirs struct{ *Set }

// Setup makes the directory once.
func (e emptyDirs) Setup(ctx context.Context, r Request) (Made, error) {
	path, err := e.emptyDir(ctx, r.Pod, r.Volume, r.Dir)
	if err != nil {
		return Made{Path: path}, err
	}
	return Made{Path: path, project: e.projectOf(r.Pod, r.Volume)}, nil
}

// Teardown removes it with all that is in it.
func (e emptyDirs) Teardown(ctx context.Context, v Remains) error {
	return unmountAndRemove(ctx, e.deps.Mounter, v.Dir)
}

// emptyDir makes an emptyDir volume once; what a container does to it later stays.
func (s *Set) emptyDir(ctx context.Context, pod *v1.Pod, v *v1.Volume, dir string) (string, error) {
	ready := s.readyFile(pod.UID, v.Name)
	_, readyErr := os.Lstat(ready)
	if readyErr == nil && v.EmptyDir.Medium == v1.StorageMediumDefault {
		// Containers may have mounted something on it, which is theirs, and may be dead.
		if there, err := isThere(dir); there || err != nil {
			return dir, err
		}
	}
	mounted, err := s.deps.Mounter.Mounted(dir)
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(dir); err == nil && readyErr == nil && mounted && v.EmptyDir.Medium != v1.StorageMediumDefault {
		return dir, nil
	}
	if err := makeDir(dir, emptyDirMode); err != nil {
		return "", err
	}
	if !mounted {
		if err := s.mountMedium(pod, v, dir); err != nil {
			return "", err
		}
	}
	if err := (ownership.Change{Group: ownership.Of(pod)}).Apply(ctx, dir); err != nil {
		return "", err
	}
	return dir, writeReady(ready, s.giveProject(ctx, pod, v, dir))
}

// mountMedium mounts what an emptyDir lies on; nothing for a plain directory.
func (s *Set) mountMedium(pod *v1.Pod, v *v1.Volume, dir string) error {
	medium := v.EmptyDir.Medium
	switch {
	case medium == v1.StorageMediumDefault:
		return nil
	case medium == v1.StorageMediumMemory:
		return s.deps.Mounter.Tmpfs(dir, s.memorySize(pod, v.EmptyDir.SizeLimit))
	case medium == v1.StorageMediumHugePages, strings.HasPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)):
		page, size, err := hugePages(pod, medium)
		if err != nil {
			return podstate.VolumeSpec.Wrap(err)
		}
		if err := s.deps.Mounter.Huge(dir, page, size); err != nil {
			return err
		}
		return os.Chmod(dir, emptyDirMode)
	}
	return podstate.VolumeSpec.Wrap(fmt.Errorf("unknown storage medium %q; use \"\", Memory or HugePages-<size>", medium))
}

// memorySize bounds a tmpfs by its own limit, the pod's memory and the node's;
// zero when none is known.
func (s *Set) memorySize(pod *v1.Pod, own *resource.Quantity) int64 {
	allocatable := s.allocatable()
	size := allocatable.Memory().Value()
	smaller := func(n int64) {
		if n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	smaller(resources.ForPod(pod).MemoryLimit) // that of its cgroup, where the memory is counted
	if own != nil {
		smaller(own.Value())
	}
	return size
}

// hugePages is the page size of a medium and how much of it the pod asks for.
func hugePages(pod *v1.Pod, medium v1.StorageMedium) (page, size int64, err error) {
	requested := map[string]int64{}
	count := func(list v1.ResourceList, put func(unit string, size int64)) {
		for name, q := range list {
			if unit, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok && !q.IsZero() {
				put(unit, q.Value())
			}
		}
	}
	for _, containers := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			count(containers[i].Resources.Requests, func(unit string, size int64) { requested[unit] += size })
		}
	}
	if pod.Spec.Resources != nil { // what the pod as a whole has stands for its containers' sum
		count(pod.Spec.Resources.Requests, func(unit string, size int64) { requested[unit] = size })
	}
	unit, named := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
	if !named {
		if len(requested) != 1 {
			return 0, 0, fmt.Errorf("medium %s needs a pod that requests exactly one huge page size, this one requests %d; name the size, e.g. HugePages-2Mi", medium, len(requested))
		}
		for unit = range requested {
		}
	}
	if requested[unit] == 0 {
		return 0, 0, fmt.Errorf("medium %s: the pod requests no hugepages-%s", medium, unit)
	}
	q, err := resource.ParseQuantity(unit)
	if err != nil {
		return 0, 0, fmt.Errorf("medium %s: %w", medium, err)
	}
	return q.Value(), requested[unit], nil
}
