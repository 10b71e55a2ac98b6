package volume

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// globalDir is where the filesystem of a local volume's device is mounted for all pods,
// as the kubelet has it.
func (s *Set) globalDir(pv string) string {
	return filepath.Join(s.cfg.RootDir, "plugins", "kubernetes.io", "local-volume", "mounts", pv)
}

// localDevice mounts the filesystem of a device, unless it is, and opens it. The caller
// has the volume's turn.
func (s *Set) localDevice(ctx context.Context, pv *v1.PersistentVolume, options []string) (*os.File, error) {
	dir := s.globalDir(pv.Name)
	mounted, err := s.deps.Mounter.Mounted(dir)
	if err != nil {
		return nil, err
	}
	if !mounted {
		if err := makeDir(dir, 0o750); err != nil {
			return nil, err
		}
		filesystem := cmp.Or(ptr.Deref(pv.Spec.Local.FSType, ""), "ext4")
		if err := s.deps.Mounter.Device(ctx, filepath.Join("/", pv.Spec.Local.Path), dir, filesystem, options); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// removeLocal ends a local volume of a pod, whose directory goes last: as long as it is
// there, this is done again.
func (s *Set) removeLocal(ctx context.Context, uid types.UID, pv, path string) error {
	if err := s.unmountLocal(ctx, path); err != nil {
		return err
	}
	if err := s.releaseDevice(ctx, uid, pv); err != nil {
		return err
	}
	return rmdir(path) // never what is in it
}

// releaseDevice unmounts the filesystem of a local volume's device with the last pod.
func (s *Set) releaseDevice(ctx context.Context, uid types.UID, pv string) error {
	dir := s.globalDir(pv)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil // it is a directory of the node
	}
	done, err := s.handles.TakeWithin(ctx, pv)
	if err != nil {
		return err
	}
	defer done()
	used, err := s.mountedElsewhere(pv, uid)
	if used || err != nil {
		return err
	}
	if err := s.deps.Mounter.UnmountRemote(ctx, dir); err != nil { // its disk may not answer
		return err
	}
	return rmdir(dir) // and so what was left of a mount that did not end in time fails
}
