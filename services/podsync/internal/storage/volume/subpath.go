package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/host/beneath"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// SubPath makes path inside a volume safe to mount into a container and
// returns what to mount: a bind mount of exactly the file or directory that
// was found, so that no symlink swapped later leads elsewhere. A path that
// does not exist becomes a directory. index is the mount's place in the
// container's volumeMounts.
func (s *Set) SubPath(ctx context.Context, pod *v1.Pod, container string, index int, volumeName, path string) (string, error) {
	volume, ok := s.HostPath(pod.UID, volumeName)
	if !ok {
		return "", fmt.Errorf("volume %q is not set up", volumeName)
	}
	if filepath.IsAbs(path) || slices.Contains(strings.Split(path, "/"), "..") {
		return "", fmt.Errorf("subPath %q must be relative and without '..'", path)
	}
	if err := component("container name", container); err != nil {
		return "", err
	}
	target := filepath.Join(s.podDir(pod.UID), subPathsDir, volumeName, container, strconv.Itoa(index))
	ofHost := isHostPath(pod, volumeName) || s.boundToHost(pod.UID, volumeName)
	whose, err := s.askedForSubPath(pod, volumeName, volume, path, ofHost)
	if err != nil {
		return "", err
	}
	ctx = apart.For(ctx, pod.Namespace)
	p := subPath{whose: whose, name: volumeName, volume: volume, path: filepath.Clean(path), ofHost: ofHost, target: target}
	if whose == "" {
		err := s.subPathHere(ctx, pod.UID, p)
		if s.deps.Apart == nil || !errors.Is(err, unix.EXDEV) {
			return target, err
		}
		p.whose = volume // it leads out, or to a mount, which may be anybody's by now
	}
	return target, s.subPathApart(ctx, pod.UID, p)
}

// subPathHere makes a subPath for which nobody is asked. With others who can it is EXDEV where
// that may have changed.
func (s *Set) subPathHere(ctx context.Context, uid types.UID, p subPath) error {
	_, leave, err := s.enter(ctx, uid)
	if err != nil {
		return err
	}
	defer leave()
	found, err := s.finderOfSubPaths()(p.volume, p.path, p.ofHost)
	if err != nil {
		return fmt.Errorf("subPath %q of volume %q: %w", p.path, p.name, err)
	}
	defer func() { _ = found.Close() }()
	return bind(s.deps.Mounter, found, p.target)
}

// finderOfSubPaths is how a path in a volume is looked up for which nobody is asked.
func (s *Set) finderOfSubPaths() func(volume, path string, ofHost bool) (*os.File, error) {
	if s.deps.Apart == nil {
		return findSubPath
	}
	return s.findNear
}

// findNear opens what a path leads to in a volume, as far as nobody is asked for it and it lies
// on the volume's own mount.
func (s *Set) findNear(volume, path string, _ bool) (*os.File, error) {
	dir, err := s.find(volume)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return openIn(dir, path, beneath.LookNear)
}

// findSubPath opens what a path in a volume leads to. In what the host has, a link may name
// the whole path of its end.
func findSubPath(volume, path string, ofHost bool) (*os.File, error) {
	found, err := openBeneath(volume, path)
	if !ofHost || !errors.Is(err, unix.EXDEV) {
		return found, err
	}
	if inside, ok := withoutLinks(volume, path); ok {
		return openBeneath(volume, inside)
	}
	return nil, err
}

// bind mounts an open file or directory on target, unless it is there already. What is there
// and dead goes: a container would else never start again.
func bind(m mount.Mounter, found *os.File, target string) error {
	want, err := found.Stat()
	if err != nil {
		return err
	}
	mounted, err := m.Mounted(target)
	if err != nil && !isDead(err) {
		return err
	}
	mounted = mounted || err != nil
	have, err := os.Lstat(target)
	if err == nil && mounted && os.SameFile(have, want) {
		return nil
	}
	if mounted {
		if err := m.Unmount(target); err != nil {
			return err
		}
	}
	if err := rmdir(target); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	if want.IsDir() {
		err = os.Mkdir(target, 0o750)
	} else {
		err = os.WriteFile(target, nil, 0o640)
	}
	if err != nil {
		return err
	}
	return m.Bind(fmt.Sprintf("/proc/self/fd/%d", found.Fd()), target)
}

// isDead says whether an error is that of a mount whose server or process is gone, or which
// has no such file any more.
func isDead(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOTCONN, unix.ESTALE, unix.EHOSTDOWN, unix.EIO, unix.EACCES}, func(e error) bool { return errors.Is(err, e) })
}

// openBeneath is openIn of a directory by its path.
func openBeneath(root, path string) (*os.File, error) {
	dir, err := os.OpenFile(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return openIn(dir, path, beneath.Look)
}

// lookUp is how a path below a directory is looked up.
type lookUp func(dir *os.File, path string) (*os.File, error)

// openIn opens path below a directory without ever leaving it, and makes the
// directories that are missing, with its own mode.
func openIn(dir *os.File, path string, look lookUp) (*os.File, error) {
	found, err := look(dir, path)
	if !errors.Is(err, unix.ENOENT) {
		return found, err
	}
	info, err := dir.Stat()
	if err != nil {
		return nil, err
	}
	if err := makeBeneath(dir, path, modeBits(info.Mode()), look); err != nil {
		return nil, err
	}
	return look(dir, path)
}

func isHostPath(pod *v1.Pod, volume string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == volume && v.HostPath != nil })
}

// withoutLinks is where a path below root leads on the host, as a path below root
// without links; false when that is not below it. What is a link by the time that
// the path is looked up is not followed out of root all the same. It is for paths
// of the host only: elsewhere the whole path in a link is that of a container.
func withoutLinks(root, path string) (string, bool) {
	base, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", false
	}
	missing := ""
	for at := filepath.Clean(path); at != "."; at = filepath.Dir(at) {
		full, err := filepath.EvalSymlinks(filepath.Join(base, at))
		if errors.Is(err, fs.ErrNotExist) && !isLink(filepath.Join(base, at)) {
			missing = filepath.Join(filepath.Base(at), missing)
			continue
		}
		if err != nil {
			return "", false
		}
		inside, err := filepath.Rel(base, full)
		return filepath.Join(inside, missing), err == nil && filepath.IsLocal(inside)
	}
	return "", false
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// makeBeneath makes the missing directories of path, one by one.
func makeBeneath(dir *os.File, path string, mode uint32, look lookUp) error {
	parts := strings.Split(path, "/")
	for i := range parts {
		f, err := look(dir, filepath.Join(parts[:i+1]...))
		if err == nil {
			_ = f.Close()
			continue
		}
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		parent, err := look(dir, filepath.Join(append([]string{"."}, parts[:i]...)...))
		if err != nil {
			return err
		}
		err = mkdirExactly(parent, parts[i], mode)
		_ = parent.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// modeBits are a mode's bits as the kernel counts them: what is made for a
// subPath is as sticky as the volume, and hands its group on like the volume.
func modeBits(m os.FileMode) uint32 {
	bits := uint32(m.Perm())
	if m&os.ModeSetuid != 0 {
		bits |= unix.S_ISUID
	}
	if m&os.ModeSetgid != 0 {
		bits |= unix.S_ISGID
	}
	if m&os.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return bits
}
