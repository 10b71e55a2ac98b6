// Package mount makes and ends mounts with the kernel's own calls; Fake stands
// in where nothing may be mounted.
//
// It owns the mount calls of podsync's volumes. It must never follow a symlink
// when it ends a mount, and never run a shell; it runs programs only for filesystems
// on devices, which the kernel alone neither makes nor checks, and of servers, whose names
// it does not look up. It must never ask a server, or whoever else answers for a
// filesystem, by a thread of this process.
package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
)

// Mounter is what volumes need of the kernel.
type Mounter interface {
	// Tmpfs mounts a tmpfs on target; sizeBytes 0 means the kernel's default.
	Tmpfs(target string, sizeBytes int64) error
	// Huge mounts a hugetlbfs on target.
	Huge(target string, pageBytes, sizeBytes int64) error
	// Bind mounts source (a path, also /proc/self/fd/N) on target.
	Bind(source, target string) error
	// Device mounts the filesystem of a block device, which is made if the device holds
	// nothing, and mended if need be. It takes as long as the device is large, and returns
	// at the end of ctx; the error may be an OtherFilesystem. What it began may go on after that, and be mounted on target as
	// long as that directory is there.
	Device(ctx context.Context, device, target, filesystem string, options []string) error
	// Resize makes the filesystem of a block device that is mounted on target as large as
	// the device. It returns at the end of ctx, and what it began may go on after that.
	Resize(ctx context.Context, device, target string) error
	// Remote mounts a filesystem of a server, with what the host has for that. It takes as
	// long as the server does, and ends with ctx.
	Remote(ctx context.Context, source, target, filesystem string, options []string) error
	// UnmountRemote is Unmount for one whose server may not answer any more.
	UnmountRemote(ctx context.Context, target string) error
	// Served are the mounts at and below dir of which somebody is asked: a server, or a
	// process of the node. Nobody is asked for that.
	Served(dir string) (map[string]bool, error)
	// AskedAt is the first of them that a path comes to, with its links, when it is looked
	// up; empty when it comes to none. Nobody is asked for that.
	AskedAt(path string) (string, error)
	// Reach is a handle of what a path leads to, with its links, or where it comes to the
	// first of them. Nobody is asked for that, whatever becomes of the path meanwhile.
	Reach(path string) (found *os.File, at string, err error)
	// Statfs is statfs(2) of the filesystem at a path, whose server may not answer; see
	// FullnessOf.
	Statfs(ctx context.Context, path string) (unix.Statfs_t, error)
	// Restrict gives the mount on target options that it can have by itself: ro, noexec …
	Restrict(target string, options []string) error
	// Unmount ends the mount on target; nil when there is none.
	Unmount(target string) error
	// Release ends loop devices that hold file open.
	Release(file string) error
	// Mounted says whether target is a mount point; false when it does not exist.
	Mounted(target string) (bool, error)
	// Share makes what is mounted below dir from now on be seen in other mount
	// namespaces, and what is mounted there below it here. It changes nothing, and
	// says so, where that is so already.
	Share(dir string) (changed bool, err error)
}

// Kernel is the real Mounter; safe for concurrent use.
type Kernel struct {
	// swaps is set once the kernel refused tmpfs' noswap (before 6.4, or in a
	// user namespace).
	swaps atomic.Bool

	cfg     Config
	resizes resizes

	// ends, looks and disks are what is done apart; one does not wait for the other.
	ends, looks doer
	disks       follower
	full        questions
}

// Config of Kernel.
type Config struct {
	// Devices is a directory for the locks of devices on which programs work.
	Devices string
}

// doer does what Calls has; *apart.Processes is one.
type doer interface {
	Do(ctx context.Context, whose, call string, args ...string) (string, error)
}

// follower does it, too, and is heard on its way; *apart.Processes is one.
type follower interface {
	Follow(ctx context.Context, whose string, told func(string), call string, args ...string) (string, error)
}

// New returns the real Mounter. This program must do Calls when it is begun as apart says.
func New(cfg Config) *Kernel {
	return &Kernel{
		cfg:   cfg,
		ends:  apart.New(apart.Config{Most: 32, MostOfOne: 8}),
		looks: apart.New(apart.Config{Most: 16, MostOfOne: 4}),
		disks: apart.New(apart.Config{Most: 64, MostOfOne: 1}),
	}
}

// Calls are what Kernel has processes of their own do.
func Calls() map[string]apart.Call {
	return map[string]apart.Call{callUnmount: unmountCall, callDetach: detachCall, callFullness: fullnessCall, callDevice: deviceCall}
}

// Tmpfs mounts a tmpfs that is not swapped out where the kernel can do that.
func (k *Kernel) Tmpfs(target string, sizeBytes int64) error {
	var options []string
	if sizeBytes > 0 {
		options = append(options, "size="+strconv.FormatInt(sizeBytes, 10))
	}
	if !k.swaps.Load() {
		err := unix.Mount("tmpfs", target, "tmpfs", 0, strings.Join(append(options[:len(options):len(options)], "noswap"), ","))
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("mount a tmpfs on %s: %w", target, err)
		}
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, strings.Join(options, ",")); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", target, err)
	}
	k.swaps.Store(true)
	return nil
}

// Huge mounts a hugetlbfs.
func (k *Kernel) Huge(target string, pageBytes, sizeBytes int64) error {
	options := fmt.Sprintf("pagesize=%d,size=%d", pageBytes, sizeBytes)
	if err := unix.Mount("nodev", target, "hugetlbfs", 0, options); err != nil {
		return fmt.Errorf("mount a hugetlbfs (%s) on %s: %w", options, target, err)
	}
	return nil
}

// Bind makes a bind mount without the mounts below source.
func (k *Kernel) Bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind-mount on %s: %w", target, err)
	}
	return nil
}

// Unmount ends the mount; one that is busy is detached, and ends with its last user.
func (k *Kernel) Unmount(target string) error { return unmount(target) }

func unmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	return ended(target, err)
}

// ended says what came of the end of a mount; that there was none is fine.
func ended(target string, err error) error {
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // EINVAL: not a mount point
	}
	return fmt.Errorf("unmount %s: %w", target, err)
}

// Mounted asks the kernel about the path itself, without following a symlink, and
// without asking the server of what is mounted there.
func (k *Kernel) Mounted(target string) (bool, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, target, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, 0, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	case err != nil && !errors.Is(err, unix.ENOSYS):
		return false, fmt.Errorf("look at %s: %w", target, err)
	}
	return mountedByTable(target) // before Linux 5.8
}

// mountedByTable reads the kernel's table of mounts.
func mountedByTable(target string) (bool, error) {
	mounts, err := mountsOn(target)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return len(mounts) > 0, err
}

// mountsOn are those on a path in the kernel's table of mounts, in which no path has a link; the
// last is on top.
func mountsOn(target string) ([]*mountinfo.Info, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(target))
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", target, err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(filepath.Join(parent, filepath.Base(target))))
	if err != nil {
		return nil, fmt.Errorf("look for what is mounted on %s: %w", target, err)
	}
	return mounts, nil
}
