package volume

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/atomicwriter"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
)

// nestedMode is the mode of a directory that another volume is mounted on.
const nestedMode = 0o755

// nestedIn lists the directories of a volume on which the pod's containers mount other
// volumes, relative to it and sorted: it is read-only in the container, so that the
// runtime cannot make them. One beneath another mount lies in what is mounted there.
// A path that can be no such directory is an error, beside the others. A file that is
// mounted over one of the volume's own needs none.
// Source: https://kubernetes.io/docs/concepts/storage/volumes/, as the kubelet does it
// for configMap, secret, downwardAPI and projected.
func (x *mountIndex) nestedIn(volume string, isFile func(point string) bool) ([]string, error) {
	found := map[string]bool{}
	var bad error
	for _, i := range x.whole[volume] {
		c := x.containers[i]
		for _, point := range nestedOf(withoutOverlays(x.files, c.beneath(volume), volume, isFile), volume) {
			err := atomicwriter.ValidatePath(point)
			if err == nil {
				found[point] = true
			} else if bad == nil {
				bad = podstate.VolumeNested.Wrap(fmt.Errorf("container %q of pod %s/%s mounts another volume beneath volume %q: %w", c.name, x.pod.Namespace, x.pod.Name, volume, err))
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), bad
}

// nestedOf is nestedIn for the mounts of one container. A mount of a part of the volume
// does not show what is made in it.
func nestedOf(mounts []v1.VolumeMount, volume string) []string {
	whole := map[string]bool{} // mount path -> whether all of the volume is mounted there
	any := false
	for i := range mounts {
		m := &mounts[i]
		at := path.Clean("/" + m.MountPath) // ".." leads nowhere from the container's root
		this := m.Name == volume && m.SubPath == "" && m.SubPathExpr == ""
		whole[at] = whole[at] || this
		any = any || this
	}
	if !any || len(whole) == 1 {
		return nil
	}
	var points, above []string
	for _, at := range slices.SortedFunc(maps.Keys(whole), byElements) {
		for len(above) > 0 && !strings.HasPrefix(at, above[len(above)-1]+"/") {
			above = above[:len(above)-1]
		}
		if len(above) > 0 && whole[above[len(above)-1]] {
			points = append(points, at[len(above[len(above)-1])+1:])
		}
		if at != "/" { // nothing can be mounted on a container's own root
			above = append(above, at)
		}
	}
	return points
}

// longestPath is the longest path that the kernel takes.
const longestPath = 4096

// withoutOverlays leaves out what may be a file and is mounted over a file of the volume:
// the runtime finds that in its place. files are the pod's hostFiles. A pod may have
// thousands of mounts: of each only what lies deepest above it is looked at.
func withoutOverlays(files map[string]bool, mounts []v1.VolumeMount, volume string, isFile func(point string) bool) []v1.VolumeMount {
	whole, lengths := map[string]bool{}, map[int]bool{}
	for i := range mounts {
		if m := &mounts[i]; m.Name == volume && m.SubPath == "" && m.SubPathExpr == "" {
			at := path.Clean("/" + m.MountPath)
			whole[at], lengths[len(at)] = true, true
		}
	}
	if len(whole) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(mounts), func(m v1.VolumeMount) bool {
		part := m.SubPath != "" || m.SubPathExpr != ""
		at := path.Clean("/" + m.MountPath)
		if !part && !files[m.Name] || len(at) > longestPath {
			return false
		}
		for end := strings.LastIndexByte(at, '/'); end >= 0; end = strings.LastIndexByte(at[:end], '/') {
			if above := max(end, 1); lengths[above] && whole[at[:above]] {
				return isFile(at[end+1:])
			}
		}
		return false
	})
}

// hostFiles are the pod's volumes that are something of the host which is not said to
// be a directory; what a claim is bound to may be.
func hostFiles(pod *v1.Pod) map[string]bool {
	files := map[string]bool{}
	for i := range pod.Spec.Volumes {
		if h := pod.Spec.Volumes[i].HostPath; h != nil {
			files[pod.Spec.Volumes[i].Name] = h.Type == nil || *h.Type != v1.HostPathDirectory && *h.Type != v1.HostPathDirectoryOrCreate
		}
		if pod.Spec.Volumes[i].PersistentVolumeClaim != nil {
			files[pod.Spec.Volumes[i].Name] = true
		}
	}
	return files
}

// byElements orders paths so that what lies below one follows it.
func byElements(a, b string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return int(a[i]) - int(b[i])
		}
	}
	return len(a) - len(b)
}

// makeNested makes the directories of a volume on which others are mounted, as far as
// they are missing, and returns the names of those that lie in it directly, also when
// one of them cannot be made.
func (s *Set) makeNested(mounts *mountIndex, v *v1.Volume, dir string, files atomicwriter.Payload) (map[string]bool, error) {
	pod := mounts.pod
	points, failed := mounts.nestedIn(v.Name, func(point string) bool {
		if _, has := files[point]; has {
			return true
		}
		info, err := os.Lstat(filepath.Join(dir, point)) // of the content before
		return err == nil && !info.IsDir()
	})
	if len(points) == 0 {
		return nil, failed
	}
	names, directories := map[string]bool{}, 0
	for _, point := range points {
		name, _, _ := strings.Cut(point, "/")
		names[name] = true
		directories += 1 + strings.Count(point, "/")
	}
	// Paths are cheap in a spec, and directories are not: none is made of too many.
	if err := s.grow(pod.UID, v.Name, directories*page); err != nil {
		return names, err
	}
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return names, err
	}
	defer func() { _ = root.Close() }()
	for _, point := range points {
		if err := makePoint(root, strings.Split(point, "/"), ownership.Of(pod)); err != nil && failed == nil {
			failed = fmt.Errorf("directory %q cannot be made in volume %q of pod %s/%s, where a container mounts another volume: %w; mount that elsewhere, or rename the file and make the pod anew",
				point, v.Name, pod.Namespace, pod.Name, err)
		}
	}
	return names, failed
}

// makePoint makes a directory below another, of the pod's group if it has one. It
// follows no link: what a link of the volume leads to is gone with its next content.
func makePoint(root *os.File, parts []string, group *int64) error {
	at := int(root.Fd())
	defer func() {
		if at != int(root.Fd()) {
			_ = unix.Close(at)
		}
	}()
	for _, name := range parts {
		err := unix.Mkdirat(at, name, nestedMode)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		next, openErr := unix.Openat(at, name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if openErr != nil {
			return podstate.VolumeNested.Wrap(fmt.Errorf("its file %q is in the way: %w", name, openErr))
		}
		if at != int(root.Fd()) {
			_ = unix.Close(at)
		}
		at = next
		if err == nil {
			if err := ownNested(at, group); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownNested gives a directory that was just made its mode and its group.
func ownNested(dir int, group *int64) error {
	mode := uint32(nestedMode)
	if group != nil {
		if err := unix.Fchown(dir, -1, int(*group)); err != nil {
			return err
		}
		mode |= unix.S_ISGID
	}
	return unix.Fchmod(dir, mode) // the umask had its part in the first one
}
