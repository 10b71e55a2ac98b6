package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/host/eintr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
)

// local mounts a directory of the node on the pod's own, or the filesystem of a block
// device, which all pods share.
func (s *Set) local(ctx context.Context, pod *v1.Pod, ref claims.Reference, pv *v1.PersistentVolume, b bound, c *chown) error {
	dir := b.Path
	options := claims.MountOptions(pv)
	if ref.ReadOnly {
		options = append(options, "ro")
	}
	if b.Served {
		return s.servedLocal(ctx, pod, ref, pv, b, c, options)
	}
	found, device, err := openLocal(pv.Spec.Local.Path, s.find)
	if err != nil {
		return err
	}
	defer func() { _ = found.Close() }()
	if !device {
		if err := mount.CheckRestrictions(options); err != nil {
			return err
		}
	}
	mounted, err := s.deps.Mounter.Mounted(dir)
	if err != nil {
		return err
	}
	if !mounted {
		// Before a device is mounted: what lies on the disk is how that is found again.
		if err := makeDir(dir, 0o750); err != nil {
			return err
		}
		source := found
		if device {
			if source, err = s.localDevice(ctx, pv, options); err != nil {
				return err
			}
			defer func() { _ = source.Close() }()
		}
		if err := s.giveLocal(ctx, pod, ref, pv, dir, source, c); err != nil {
			return err
		}
		if err := s.deps.Mounter.Bind(fmt.Sprintf("/proc/self/fd/%d", source.Fd()), dir); err != nil {
			return err
		}
	}
	if device { // has its options
		options = slices.DeleteFunc(options, func(o string) bool { return o != "ro" })
	}
	if len(options) == 0 {
		return nil
	}
	return s.deps.Mounter.Restrict(dir, options) // again, if it was not come to the first time
}

// openLocal opens what a local volume is made of: a directory, or a device, which is only
// looked at. What was looked at is what is mounted of a directory, whatever becomes of
// its path.
func openLocal(path string, find finder) (source *os.File, device bool, err error) {
	if path == "" {
		return nil, false, podstate.VolumeSpec.Wrap(errors.New("local volume source is nil or local path is not set"))
	}
	if slices.Contains(strings.Split(path, "/"), "..") {
		return nil, false, podstate.VolumeSpec.Wrap(fmt.Errorf("invalid path: %s must not contain '..'", path))
	}
	at, err := find(filepath.Join("/", path))
	if err != nil {
		return nil, false, ofLocalPath(err)
	}
	info, err := at.Stat()
	if err == nil && info.Mode()&os.ModeType == os.ModeDevice {
		return at, true, nil
	}
	defer func() { _ = at.Close() }()
	if err == nil && !info.IsDir() {
		err = podstate.VolumeLocalPath.Wrap(errors.New("only directory and block device are supported"))
	}
	if err != nil {
		return nil, false, err
	}
	source, err = within(int(at.Fd()), at.Name())
	return source, false, err
}

// giveLocal gives a volume to the pod's group before it is mounted, so that one that is
// mounted is given. One that others have mounted stays theirs.
func (s *Set) giveLocal(ctx context.Context, pod *v1.Pod, ref claims.Reference, pv *v1.PersistentVolume, dir string, source *os.File, c *chown) error {
	group := ownership.Of(pod)
	if group == nil || ref.ReadOnly {
		return nil
	}
	shared, err := s.mountedElsewhere(pv.Name, pod.UID)
	if err != nil {
		return err
	}
	if shared {
		var st unix.Stat_t
		if err := eintr.Fstat(int(source.Fd()), &st); err != nil {
			return fmt.Errorf("failed to check fsGroup for %s (%w)", source.Name(), err)
		}
		if int64(st.Gid) != *group {
			s.event(pod, "AlreadyMountedVolume", fmt.Sprintf("The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", *group, pv.Name, st.Gid))
		}
		return nil
	}
	if s.deps.Events != nil {
		defer ownership.TellSlow(s.deps.Events, pod, dir, c.files.Load)()
	}
	return c.run(ctx, pod, source)
}

func (s *Set) event(pod *v1.Pod, reason, message string) {
	if s.deps.Events != nil {
		s.deps.Events.Pod(pod, v1.EventTypeWarning, reason, message)
	}
}
