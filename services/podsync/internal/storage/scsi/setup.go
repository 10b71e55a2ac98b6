package scsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// Setup implements volume.Driver.
func (v *Volumes) Setup(ctx context.Context, r volume.Request) (volume.Made, error) {
	w, err := wantedBy(r)
	if err != nil {
		return volume.Made{}, err
	}
	p := v.placeOf(w.disk, w.block)
	p.namespace = w.pod.Namespace
	done, err := v.places.TakeWithin(ctx, p.path)
	if err != nil {
		return volume.Made{}, err
	}
	defer done()
	made := volume.Made{Path: w.dir}
	if w.block {
		err = v.mapDevice(ctx, w, p)
	} else {
		made.Labelled, err = v.mountLabelled(ctx, w, p)
	}
	if err != nil {
		return volume.Made{}, err
	}
	return made, nil
}

// mount mounts a disk's filesystem for a pod. stood: it is mounted already. The caller has the
// place's turn.
func (v *Volumes) mount(ctx context.Context, w *wanted, p place, stood bool) error {
	if !stood {
		if err := v.mountForAll(ctx, w, p); err != nil {
			return err
		}
		if err := os.MkdirAll(w.dir, 0o750); err != nil {
			return err
		}
		if err := v.toGive(w); err != nil {
			return err
		}
		if err := v.deps.Mounter.Bind(p.path, w.dir); err != nil {
			return err
		}
	}
	if w.readOnly {
		return v.deps.Mounter.Restrict(w.dir, []string{"ro"}) // again, if it was not come to the first time
	}
	return v.giveAway(ctx, w)
}

// mountForAll mounts a disk's filesystem where all pods have it from.
func (v *Volumes) mountForAll(ctx context.Context, w *wanted, p place) error {
	mounted, err := v.deps.Mounter.Mounted(p.path)
	if err != nil || mounted {
		return err
	}
	device, err := v.attach(ctx, w, p)
	if err != nil {
		return &podstate.VolumeStep{Step: podstate.WaitForAttach, Err: err}
	}
	options := w.options
	if w.readOnly {
		options = append(options[:len(options):len(options)], "ro")
	}
	if p.label != "" {
		options = append(options[:len(options):len(options)], selinux.MountOption(p.label))
	}
	if w.inline && strings.HasPrefix(w.fsType, "ext") {
		options = append(options, "errors=remount-ro") // the disk itself may say that the machine is to panic
	}
	if w.inline {
		if err := v.guard(ctx, w, p, device); err != nil {
			return &podstate.VolumeStep{Step: podstate.WaitForAttach, Err: err}
		}
	}
	if err := v.deps.Mounter.Device(ctx, device, p.path, w.fsType, options); err != nil {
		return &podstate.VolumeStep{Step: "MountVolume.MountDevice", Err: err}
	}
	return nil
}

// guard keeps a disk from pods that is something else's, which is noted: it is not taken from
// the node with the volume.
func (v *Volumes) guard(ctx context.Context, w *wanted, p place, device string) error {
	err := v.ofNobody(ctx, w.disk, device)
	others := (*othersDisk)(nil)
	if p.others = errors.As(err, &others); err != nil && !p.others || p.others == v.refused(p) {
		return err // nothing else is noted already
	}
	done, turnErr := v.disks.TakeWithin(ctx, p.disk.turn())
	if turnErr != nil {
		return errors.Join(err, turnErr)
	}
	defer done()
	return errors.Join(err, v.keepAnew(p))
}

// refused says whether it is noted that the disk of a place is something else's.
func (v *Volumes) refused(p place) bool {
	r, is := v.recordAt(p.path)
	return is && r.Others
}

// keepAnew keeps a place that may have been kept before, with what was made for its disk, or
// others of its target have left to it. The caller has the disk's turn.
func (v *Volumes) keepAnew(p place) error {
	if t, is := p.disk.(*target); is {
		if err := v.remember(p, t); err != nil {
			return err
		}
	}
	return v.keep(p, false)
}

// attach has the node have a disk. What it is is written before.
func (v *Volumes) attach(ctx context.Context, w *wanted, p place) (device string, err error) {
	done, err := v.disks.TakeWithin(ctx, w.disk.turn())
	if err != nil {
		return "", err
	}
	defer done()
	p.others = w.inline && v.refused(p) // until it is looked at anew
	if err := v.keepAnew(p); err != nil {
		return "", err
	}
	switch d := w.disk.(type) {
	case *target:
		device, err = v.attachISCSI(ctx, &login{want: w, place: p, target: d})
		return device, podstate.VolumeTarget.Wrap(err)
	case *fabric:
		device, err = v.attachFC(ctx, d)
		return device, podstate.VolumeFabric.Wrap(err)
	}
	return "", fmt.Errorf("a disk of the kind %s is not known", w.disk.kind())
}

// toGive keeps, before a volume is mounted, that its files are to be given to the pod's group.
// Of one that is mounted and of which nothing is kept they were: what the pod has made since stays
// as the pod has it.
func (v *Volumes) toGive(w *wanted) error {
	if w.readOnly || ownership.Of(w.pod) == nil {
		return nil
	}
	return v.write(record{Path: w.dir})
}

// giveAway gives the files to the pod's group, if that is not done. What does not let
// itself be given stays as it is, as with the kubelet.
func (v *Volumes) giveAway(ctx context.Context, w *wanted) error {
	if _, err := os.Lstat(v.recordOf(w.dir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	change := ownership.Change{Group: ownership.Of(w.pod), Given: &atomic.Int64{}}
	if policy := w.pod.Spec.SecurityContext.FSGroupChangePolicy; policy != nil {
		change.OnMismatch = *policy == v1.FSGroupChangeOnRootMismatch
	}
	change.Skip = func(err error) {
		klog.FromContext(ctx).V(2).Info("A file of a volume cannot be given to the pod's group", "pod", klog.KObj(w.pod), "volume", w.name, "err", err)
	}
	if v.deps.Events != nil {
		defer ownership.TellSlow(v.deps.Events, w.pod, w.dir, change.Given.Load)()
	}
	var err error
	if v.deps.Apart == nil {
		err = change.Apply(ctx, w.dir)
	} else {
		err = change.ApplyApart(ctx, v.deps.Apart, mount.Filesystem(w.dir), w.dir)
	}
	if err == nil {
		err = removeOne(v.recordOf(w.dir))
	}
	return err
}

// mapDevice gives a pod a disk as a device. The caller has the place's turn.
func (v *Volumes) mapDevice(ctx context.Context, w *wanted, p place) error {
	shown := filepath.Join(p.path, string(w.pod.UID))
	mounted, err := v.deps.Mounter.Mounted(shown)
	if err != nil {
		return err
	}
	if _, err := os.Stat(w.dir); err == nil && mounted {
		return nil
	}
	device, err := v.attach(ctx, w, p)
	if err != nil {
		return &podstate.VolumeStep{Step: "MapVolume.WaitForAttach", Err: err}
	}
	err = link(device, w.dir) // first: by it the device is found again
	if err == nil && !mounted {
		err = v.show(device, shown)
	}
	if err != nil {
		return &podstate.VolumeStep{Step: "MapVolume.MapBlockVolume", Err: err}
	}
	return nil
}

// link makes a link to a device, or mends it.
func link(device, at string) error {
	if to, err := os.Readlink(at); err == nil && to == device {
		return nil
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o750), removeOne(at)); err != nil {
		return err
	}
	return os.Symlink(device, at)
}

// show shows a device at another path, too.
func (v *Volumes) show(device, at string) error {
	file, err := os.OpenFile(at, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), v.deps.Mounter.Bind(device, at))
}

// Global is where a disk is shown as a device for all pods.
func (v *Volumes) Global(r volume.Request) string {
	w, err := wantedBy(r)
	if err != nil {
		return ""
	}
	return v.placeOf(w.disk, true).path
}
