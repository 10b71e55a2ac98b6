package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/host/beneath"
)

// ErrCovered says that the directory is shared, and that something which was mounted below
// it before lies covered by its mount.
var ErrCovered = errors.New("covered by the directory's own mount, and keeps directories from being removed until the machine is booted")

// Share makes the mount that dir is on a shared one. Where dir is no mount point, it is
// bound onto itself first, with what is mounted below it, which is there once
// afterwards: what is not dir's stays as it is. A crash in between leaves a mount point,
// which the next call shares. An error that is ErrCovered comes with a shared directory.
// Source: https://kubernetes.io/docs/concepts/storage/volumes/#mount-propagation
func (k *Kernel) Share(dir string) (changed bool, err error) {
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return false, err
	}
	on, err := mountOf(dir)
	if err != nil {
		return false, err
	}
	if isShared(on) {
		return false, nil
	}
	var left error
	if on.Mountpoint != dir {
		if left, err = bindOnItself(dir, on); err != nil {
			return false, err
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return true, fmt.Errorf("make the mount on %s a shared one: %w", dir, err)
	}
	return true, left
}

// bindOnItself makes dir, which lies on a mount, a mount point. What was mounted below it
// is bound along and then ended where it was: nobody could reach it there any more, and
// no directory can be removed as long as something is mounted on it. left says what could
// not be ended.
func bindOnItself(dir string, on *mountinfo.Info) (left, err error) {
	below, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("list the mounts below %s: %w", dir, err)
	}
	before, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = before.Close() }()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return nil, fmt.Errorf("bind %s onto itself: %w", dir, err)
	}
	var failed []error
	for _, m := range below {
		if m.Parent != on.ID { // it ends with the one that it lies in
			continue
		}
		if err := endCovered(before, dir, m.Mountpoint, below); err != nil {
			failed = append(failed, fmt.Errorf("what was mounted on %s is %w: %w", m.Mountpoint, ErrCovered, err))
		}
	}
	return errors.Join(failed...), nil
}

// endCovered ends what is mounted on target as seen from before, a handle of dir from the
// time when nothing covered it. all are the mounts that there were below dir.
func endCovered(before *os.File, dir, target string, all []*mountinfo.Info) error {
	rel, err := filepath.Rel(dir, filepath.Dir(target))
	if err != nil {
		return err
	}
	parent, err := beneath.Look(before, rel)
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	path := fmt.Sprintf("/proc/self/fd/%d/%s", parent.Fd(), filepath.Base(target))
	in := func(m *mountinfo.Info) bool {
		return m.Mountpoint == target || strings.HasPrefix(m.Mountpoint, target+"/")
	}
	shared := slices.ContainsFunc(all, func(m *mountinfo.Info) bool { return in(m) && isShared(m) })
	for _, m := range all {
		if m.Mountpoint != target {
			continue
		}
		if shared { // else its end would be that of what is bound, and of others' too
			if err := unix.Mount("", path, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
				return err
			}
		}
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			return err
		}
	}
	return nil
}

// mountOf finds the mount that a path without symlinks is on.
func mountOf(path string) (*mountinfo.Info, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil {
		return nil, fmt.Errorf("find the mount that %s is on: %w", path, err)
	}
	var on *mountinfo.Info
	for _, m := range mounts { // of those on one place the last is on top
		if on == nil || len(m.Mountpoint) >= len(on.Mountpoint) {
			on = m
		}
	}
	if on == nil {
		return nil, fmt.Errorf("find the mount that %s is on: none is shown", path)
	}
	return on, nil
}

// isShared says whether a mount passes on what is mounted below it.
func isShared(m *mountinfo.Info) bool {
	return slices.ContainsFunc(strings.Fields(m.Optional), func(o string) bool { return strings.HasPrefix(o, "shared:") })
}
