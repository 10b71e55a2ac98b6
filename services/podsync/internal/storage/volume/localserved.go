package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/host/eintr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
)

const callLocal = "local-path"

// errNoLocalServer ends the wait for the server of a local volume's path.
var errNoLocalServer = podstate.VolumeServerSilent.Wrap(errors.New("the path of the local volume lies on a filesystem whose server does not answer"))

// localServedAt is where the way to a local volume comes to a server; empty when it does not.
func (s *Set) localServedAt(path string) (string, error) {
	if s.deps.Apart == nil || path == "" || slices.Contains(strings.Split(path, "/"), "..") {
		return "", nil // else it is refused by its name
	}
	return s.deps.Mounter.AskedAt(filepath.Join("/", path))
}

// isServedLocal says whether a volume is a local one that lies with a server.
func (s *Set) isServedLocal(pv *v1.PersistentVolume) (bool, error) {
	if pv.Spec.Local == nil {
		return false, nil
	}
	at, err := s.localServedAt(pv.Spec.Local.Path)
	return at != "", err
}

// servedLocal is local of a directory that lies with a server, which may not answer, also in
// the next moment: another process looks at it and mounts what it has found, and podsync
// itself never looks at it.
func (s *Set) servedLocal(ctx context.Context, pod *v1.Pod, ref claims.Reference, pv *v1.PersistentVolume, b bound, c *chown, options []string) error {
	if err := mount.CheckRestrictions(options); err != nil {
		return err
	}
	mounted, err := s.deps.Mounter.Mounted(b.Path)
	if err != nil {
		return err
	}
	if !mounted {
		if err := makeDir(b.Path, 0o750); err != nil {
			return err
		}
	}
	if err := s.mountServedLocal(ctx, pod, ref, pv, b.Path, options); err != nil || mounted && !b.Begun {
		return err
	}
	return s.giveServedLocal(ctx, pod, ref, pv, b.Path, c)
}

// mountServedLocal mounts a directory of a server with its options, and tells of it if it is
// another group's whose pods have it.
func (s *Set) mountServedLocal(ctx context.Context, pod *v1.Pod, ref claims.Reference, pv *v1.PersistentVolume, dir string, options []string) error {
	at, err := s.localServedAt(pv.Spec.Local.Path)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, servedPathWithin, errNoLocalServer)
	defer cancel()
	owner, err := s.deps.Apart.Do(limited, at, callLocal, append([]string{filepath.Join("/", pv.Spec.Local.Path), dir}, options...)...)
	if err != nil {
		return ofLocalPath(err)
	}
	group := ownership.Of(pod)
	if group == nil || ref.ReadOnly || owner == strconv.FormatInt(*group, 10) {
		return nil
	}
	shared, err := s.mountedElsewhere(pv.Name, pod.UID)
	if shared {
		s.event(pod, "AlreadyMountedVolume", fmt.Sprintf("The requested fsGroup is %d, but the volume %s has GID %s. The volume may not be shareable.", *group, pv.Name, owner))
	}
	return err
}

// giveServedLocal gives what is mounted to the pod's group. What others have mounted stays
// theirs.
func (s *Set) giveServedLocal(ctx context.Context, pod *v1.Pod, ref claims.Reference, pv *v1.PersistentVolume, dir string, c *chown) error {
	group := ownership.Of(pod)
	if group == nil || ref.ReadOnly {
		return nil
	}
	shared, err := s.mountedElsewhere(pv.Name, pod.UID)
	if err != nil || shared {
		return err
	}
	change := c.change(pod)
	change.Skip = func(err error) {
		klog.FromContext(ctx).Info("Some files of a volume could not be given to the pod's fsGroup; they stay as they are", "path", dir, "group", *group, "err", err)
	}
	if s.deps.Events != nil {
		defer ownership.TellSlow(s.deps.Events, pod, dir, c.files.Load)()
	}
	return change.ApplyApart(ctx, s.deps.Apart, mount.Filesystem(dir), dir)
}

// localCall mounts what a local volume is made of, unless it is mounted, with its options,
// and answers whose group it is.
func localCall(args []string) (string, error) {
	if len(args) < 2 {
		return "", fmt.Errorf("%s takes a path, where to mount it, and options", callLocal)
	}
	path, dir, options := args[0], args[1], args[2:]
	found, device, err := openLocal(path, findByPath)
	if err != nil {
		return "", err
	}
	defer func() { _ = found.Close() }()
	if device {
		return "", errDeviceOfServer(path)
	}
	var st unix.Stat_t
	if err := eintr.Fstat(int(found.Fd()), &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	kernel := mount.New(mount.Config{})
	mounted, err := kernel.Mounted(dir) // also by one that was given up, and has come to it after all
	if err == nil && !mounted {
		err = kernel.Bind(fmt.Sprintf("/proc/self/fd/%d", found.Fd()), dir)
	}
	if err == nil && len(options) > 0 {
		err = kernel.Restrict(dir, options)
	}
	return strconv.FormatUint(uint64(st.Gid), 10), err
}

// errDeviceOfServer refuses a device that is found with a server only: who uses it would ask
// that each time.
func errDeviceOfServer(path string) error {
	return podstate.VolumeAsSaid.Wrap(fmt.Errorf("the way to the device %s leads over a filesystem that a server or a process answers for; name the device in local.path by its path in /dev", path))
}

// unmountLocal ends the mount of a local volume, which may be of a server.
func (s *Set) unmountLocal(ctx context.Context, dir string) error {
	served, err := s.deps.Mounter.Served(dir)
	if err == nil && served[dir] {
		return s.deps.Mounter.UnmountRemote(ctx, dir)
	}
	return s.deps.Mounter.Unmount(dir)
}
