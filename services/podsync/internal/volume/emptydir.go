package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// emptyDirMode lets every user of the pod write.
const emptyDirMode = 0o777

// emptyDir makes an emptyDir volume once; what a container does to it later stays.
func (s *Set) emptyDir(pod *v1.Pod, v *v1.Volume) (string, error) {
	dir := s.volumeDir(pod.UID, pluginEmptyDir, v.Name)
	ready := s.readyFile(pod.UID, v.Name)
	mounted, err := s.deps.Mounter.Mounted(dir)
	if err != nil {
		return "", err
	}
	_, readyErr := os.Lstat(ready)
	_, dirErr := os.Lstat(dir)
	if readyErr == nil && dirErr == nil && mounted == (v.EmptyDir.Medium != v1.StorageMediumDefault) {
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
	if err := own(dir, groupOf(pod), false); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(ready), 0o750); err != nil {
		return "", err
	}
	return dir, os.WriteFile(ready, nil, 0o640)
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
			return err
		}
		if err := s.deps.Mounter.Huge(dir, page, size); err != nil {
			return err
		}
		return os.Chmod(dir, emptyDirMode)
	}
	return fmt.Errorf("unknown storage medium %q; use \"\", Memory or HugePages-<size>", medium)
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
	smaller(podMemoryLimit(pod))
	if own != nil {
		smaller(own.Value())
	}
	return size
}

// podMemoryLimit is the pod's own limit, else the sum of its containers' if
// all have one; zero for none.
func podMemoryLimit(pod *v1.Pod) int64 {
	if pod.Spec.Resources != nil {
		if q, ok := pod.Spec.Resources.Limits[v1.ResourceMemory]; ok {
			return q.Value()
		}
	}
	var sum int64
	for i := range pod.Spec.Containers {
		q, ok := pod.Spec.Containers[i].Resources.Limits[v1.ResourceMemory]
		if !ok || q.IsZero() {
			return 0
		}
		sum += q.Value()
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			q, ok := c.Resources.Limits[v1.ResourceMemory]
			if !ok || q.IsZero() {
				return 0
			}
			sum += q.Value()
		}
	}
	return sum
}

// hugePages is the page size of a medium and how much of it the pod asks for.
func hugePages(pod *v1.Pod, medium v1.StorageMedium) (page, size int64, err error) {
	requested := map[string]int64{}
	count := func(containers []v1.Container) {
		for i := range containers {
			for name, q := range containers[i].Resources.Requests {
				if unit, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok && !q.IsZero() {
					requested[unit] += q.Value()
				}
			}
		}
	}
	count(pod.Spec.Containers)
	count(pod.Spec.InitContainers)
	unit, named := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
	if !named {
		if len(requested) != 1 {
			return 0, 0, fmt.Errorf("medium %s needs a pod that requests exactly one huge page size, this one requests %d; name the size, e.g. HugePages-2Mi", medium, len(requested))
		}
		for unit = range requested {
		}
	}
	if requested[unit] == 0 {
		return 0, 0, fmt.Errorf("medium %s: no container of the pod requests hugepages-%s", medium, unit)
	}
	q, err := resource.ParseQuantity(unit)
	if err != nil {
		return 0, 0, fmt.Errorf("medium %s: %w", medium, err)
	}
	return q.Value(), requested[unit], nil
}
