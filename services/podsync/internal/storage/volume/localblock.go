package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// localMap is where the device of a local volume is shown for a pod, as the kubelet has it.
func (s *Set) localMap(uid types.UID, pv string) string {
	return filepath.Join(s.cfg.RootDir, "plugins", "kubernetes.io", "local-volume", "volumeDevices", pv, string(uid))
}

// localBlock gives a local volume's device to a pod, by the link that it looks for. The
// caller has the volume's turn.
func (s *Set) localBlock(pod *v1.Pod, pv *v1.PersistentVolume, b bound) error {
	link := b.Path
	if err := s.checkLocalBlock(pv.Spec.Local.Path, b.Served); err != nil {
		return &podstate.VolumeStep{Step: "MapVolume.MapPodDevice", Err: err}
	}
	path, shown := filepath.Join("/", pv.Spec.Local.Path), s.localMap(pod.UID, pv.Name)
	err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o750), os.MkdirAll(filepath.Dir(shown), 0o750))
	if to, linkErr := os.Readlink(link); err == nil && (linkErr != nil || to != path) {
		if err = rmdir(link); err == nil {
			err = os.Symlink(path, link)
		}
	}
	if err == nil {
		err = s.showDevice(path, shown)
	}
	if err != nil {
		return &podstate.VolumeStep{Step: "MapVolume.MapBlockVolume", Err: err}
	}
	return nil
}

// checkLocalBlock refuses what is no device of this node.
func (s *Set) checkLocalBlock(path string, served bool) error {
	if served {
		return errDeviceOfServer(path)
	}
	found, device, err := openLocal(path, s.find)
	if err != nil {
		return err
	}
	_ = found.Close()
	if !device {
		return podstate.VolumeNoDevice.Wrap(fmt.Errorf("%s is a directory, and the volume is one of volumeMode Block", path))
	}
	return nil
}

// showDevice shows a device at another path, too.
func (s *Set) showDevice(device, at string) error {
	mounted, err := s.deps.Mounter.Mounted(at)
	if err != nil || mounted {
		return err
	}
	file, err := os.OpenFile(at, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), s.deps.Mounter.Bind(device, at))
}

// Unmap takes the device of a local volume from a pod, also as a kubelet has given it.
func (d claimed) Unmap(ctx context.Context, v Remains) error {
	shown := d.set.localMap(v.UID, v.Name)
	done, err := d.set.handles.TakeWithin(ctx, v.Name)
	if err != nil {
		return err
	}
	defer done()
	if _, err := os.Lstat(shown); err == nil {
		if err := d.set.deps.Mounter.Release(shown); err != nil {
			return err
		}
		if err := d.set.deps.Mounter.Unmount(shown); err != nil {
			return err
		}
	}
	if err := rmdir(shown); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(shown)) // with the last pod's
	return rmdir(v.Dir)
}

// Unmap leaves the link to a device as it is: what is behind it is not known.
func (f foreign) Unmap(_ context.Context, v Remains) error {
	if _, err := os.Lstat(v.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("volume %q is a device of plugin %s, which this node has no driver of; end what was made for it and remove %s by hand", v.Name, f.plugin, v.Dir)
}

// tellOfDevice tells that a pod has a device, in the kubelet's words.
func (s *Set) tellOfDevice(pod *v1.Pod, b bound) {
	if s.deps.Events == nil {
		return
	}
	plugins := filepath.Join(s.cfg.RootDir, "plugins", "kubernetes.io")
	global := filepath.Join(plugins, "local-volume", "volumeDevices", b.PV)
	switch b.Kind {
	case claims.CSI:
		global = filepath.Join(plugins, "csi", "volumeDevices", b.PV, "dev")
	case claims.ISCSI, claims.FC:
		global = b.global
	}
	const text = "MapVolume.MapPodDevice succeeded for volume %q %s %q"
	s.deps.Events.Pod(pod, v1.EventTypeNormal, "SuccessfulMountVolume", fmt.Sprintf(text, b.PV, "globalMapPath", global))
	s.deps.Events.Pod(pod, v1.EventTypeNormal, "SuccessfulMountVolume", fmt.Sprintf(text, b.PV, "volumeMapPath", filepath.Dir(b.Path)))
}
