package eviction

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// Unlinked are files that a container holds open and that have no name any more: they
// use the disk, and whoever measures directories does not see them.
// Source: https://github.com/kubernetes/kubernetes/issues/83107
type Unlinked struct {
	Container string
	// Root lie on the filesystem of the root directory, Layer in the writable layer.
	Root, Layer Files
	// Volumes are those of Root of which it is known in which volume they lie, by volume.
	Volumes map[string]Files
	// Counted lie in volumes that their filesystem counts, whose figures have them unless these
	// were measured anew; of those by "" it is not known in which.
	Counted map[string]Files
	// Largest is what the largest of them was called.
	Largest string
}

// Files is how many there are and what lies in them.
type Files struct{ Bytes, Count uint64 }

func (f Files) and(more Files) Files { return Files{f.Bytes + more.Bytes, f.Count + more.Count} }

func (f Files) of(signal string) uint64 {
	if ResourceOf(signal) == inodes {
		return f.Count
	}
	return f.Bytes
}

// unlinkedOf is what of them counts for a signal, and who holds the most of it.
func unlinkedOf(by pressure.Signal, layout threshold.Layout, all []Unlinked) (usage int64, named Held) {
	p := partsOf(by.Name, layout)
	var most int64
	for _, u := range all {
		var n uint64
		if p.volumes {
			n += u.Root.of(by.Name)
		}
		if p.layers {
			n += u.Layer.of(by.Name)
		}
		if by.Capacity > 0 {
			n = min(n, by.Capacity) // They may share their blocks.
		}
		usage += whole(n)
		if whole(n) > most {
			most, named = whole(n), heldOpen(u, Amount(by.Name, n))
		}
	}
	return usage, named
}

// removed is what of a pod's open files without a name counts for its own limits.
type removed struct {
	// volumes lies in emptyDirs, known in which of them; the rest is in the one of this name
	// if that is known; layers in the writable layers, by container.
	volumes int64
	known   map[string]int64
	volume  string
	layers  map[string]int64
	named   Held
}

// removedOf says what counts. What lies on the filesystem of the root directory counts if it
// is known to lie in an emptyDir. Of the rest, which may be in any volume that is there, it
// does only for a pod of whose volumes all do.
func removedOf(pod *v1.Pod, all []Unlinked) removed {
	out, most := removed{known: map[string]int64{}, layers: map[string]int64{}}, int64(0)
	dirs, own := emptyDirs(pod)
	if len(dirs) == 1 {
		out.volume = dirs[0]
	}
	for _, u := range all {
		n, rest := whole(u.Layer.Bytes), whole(u.Root.Bytes)
		out.layers[u.Container] += n
		for name, v := range u.Volumes {
			rest -= whole(v.Bytes)
			if slices.Contains(dirs, name) {
				out.known[name] += whole(v.Bytes)
				n += whole(v.Bytes)
			}
		}
		if rest > 0 && own {
			out.volumes += rest
			n += rest
		}
		if n > most {
			most, out.named = n, heldOpen(u, bytes(n).String())
		}
	}
	return out
}

// all is what counts for the pod as a whole.
func (r removed) all() int64 {
	sum := r.volumes
	for _, n := range r.layers {
		sum += n
	}
	for _, n := range r.known {
		sum += n
	}
	return sum
}

// of is what lies in a volume, as far as that is known.
func (r removed) of(v *v1.Volume) int64 {
	sum := r.known[v.Name]
	if v.Name == r.volume {
		sum += r.volumes
	}
	return sum
}

// emptyDirs are a pod's that are on a disk. own: it can write to no other volume on the
// node's disk.
func emptyDirs(pod *v1.Pod) (names []string, own bool) {
	own = true
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault:
			names = append(names, v.Name)
		case v.EmptyDir == nil && v.ConfigMap == nil && v.Secret == nil && v.DownwardAPI == nil && v.Projected == nil:
			own = false
		}
	}
	return names, own
}

// Held names what a container holds open in files that were removed. The zero value is
// nothing.
type Held struct {
	Container, Amount string
	// Largest is what the largest of them was called, which is the container's own affair:
	// it is not for everybody.
	Largest string
}

func heldOpen(u Unlinked, amount string) Held { return Held{u.Container, amount, u.Largest} }

// String says it without the file's name; empty when it is nothing.
func (h Held) String() string {
	if h == (Held{}) {
		return ""
	}
	return fmt.Sprintf("container %s holds %s open in files that were removed", h.Container, h.Amount)
}

// Whole are files beside figures that were measured anew, which have none of them: what lies in
// a volume that its filesystem counts is like any other.
func Whole(all []Unlinked) []Unlinked {
	out := slices.Clone(all)
	for i := range out {
		u := &out[i]
		if len(u.Counted) == 0 {
			continue
		}
		volumes := maps.Clone(u.Volumes)
		if volumes == nil {
			volumes = map[string]Files{}
		}
		for name, files := range u.Counted {
			u.Root = u.Root.and(files)
			if name != "" {
				volumes[name] = volumes[name].and(files)
			}
		}
		u.Volumes, u.Counted = volumes, nil
	}
	return out
}

// Least is what a pod held both times, at most: in a layer what its container did, in volumes and
// beside them what any of its containers did, which may give files to each other. What it held all
// the time, but in one volume after the other, is in none of them.
func Least(first, second []Unlinked) (out []Unlinked) {
	layers, rest, volumes := map[string]Files{}, Files{}, map[string]Files{}
	var once, twice, all Files
	for i := range first {
		u := &first[i]
		layers[u.Container], once = u.Layer, once.and(u.Root)
		rest = rest.and(u.rest())
		for name, v := range u.Volumes {
			volumes[name] = volumes[name].and(v)
		}
	}
	for i := range second {
		u := second[i]
		twice = twice.and(u.Root)
		u.Layer = least(layers[u.Container], u.Layer)
		of := least(rest, u.rest())
		u.Root, rest = of, rest.less(of)
		had := u.Volumes
		u.Volumes = map[string]Files{}
		for name, v := range had {
			of := least(volumes[name], v)
			u.Volumes[name], volumes[name] = of, volumes[name].less(of)
			u.Root = u.Root.and(of)
		}
		all = all.and(u.Root)
		out = append(out, u)
	}
	left := least(once, twice).less(all)
	for i := range out {
		of := least(left, second[i].Root.less(out[i].Root))
		out[i].Root, left = out[i].Root.and(of), left.less(of)
	}
	return out
}

// rest are those of Root of which it is not known in which volume they lie.
func (u *Unlinked) rest() Files {
	rest := u.Root
	for _, v := range u.Volumes {
		rest = rest.less(v)
	}
	return rest
}

func (f Files) less(by Files) Files {
	return Files{f.Bytes - min(f.Bytes, by.Bytes), f.Count - min(f.Count, by.Count)}
}

func least(a, b Files) Files { return Files{min(a.Bytes, b.Bytes), min(a.Count, b.Count)} }

// Weighed is what of files held since then counts beside figures: what lies in a layer
// that was not weighed since may be in its weight, too.
func Weighed(files []Unlinked, s *statsapi.PodStats, since time.Time) []Unlinked {
	out := slices.Clone(files)
	for i := range out {
		if !slices.ContainsFunc(containersOf(s), func(c statsapi.ContainerStats) bool {
			return c.Name == out[i].Container && c.Rootfs != nil && c.Rootfs.Time.After(since)
		}) {
			out[i].Layer = Files{}
		}
	}
	return out
}

// LayersAlone are figures without what was measured of directories; nil of nil.
func LayersAlone(s *statsapi.PodStats) *statsapi.PodStats {
	if s == nil {
		return nil
	}
	out := &statsapi.PodStats{PodRef: s.PodRef}
	if s.EphemeralStorage != nil {
		out.EphemeralStorage = &statsapi.FsStats{}
	}
	for i := range s.Containers {
		out.Containers = append(out.Containers, statsapi.ContainerStats{Name: s.Containers[i].Name, Rootfs: s.Containers[i].Rootfs})
	}
	return out
}

func containersOf(s *statsapi.PodStats) []statsapi.ContainerStats {
	if s == nil {
		return nil
	}
	return s.Containers
}
