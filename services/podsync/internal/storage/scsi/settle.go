package scsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/host/apart"
)

// Settle takes the disk of a volume from the node, if no pod has it. left says that
// something of the volume is on the node still, since one has. Idempotent, also over a crash
// at any point.
func (v *Volumes) Settle(ctx context.Context, name v1.UniqueVolumeName) (left bool, err error) {
	all, err := v.left()
	if err != nil {
		return true, err
	}
	var failed []error
	for _, p := range all {
		if p.disk.unique() != name {
			continue
		}
		used, err := v.settle(ctx, p)
		left = left || used
		failed = append(failed, err)
	}
	return left, errors.Join(failed...)
}

func (v *Volumes) settle(ctx context.Context, p place) (used bool, err error) {
	ctx = apart.For(ctx, p.namespace)
	done, err := v.places.TakeWithin(ctx, p.path)
	if err != nil {
		return true, err
	}
	defer done()
	if used, err := v.used(p); used || err != nil {
		return true, err
	}
	if !p.block {
		if err := v.deps.Mounter.UnmountRemote(ctx, p.path); err != nil {
			return true, err
		}
	}
	if t, is := p.disk.(*target); is {
		if _, err := os.Lstat(v.recordOf(p.path)); errors.Is(err, fs.ErrNotExist) { // another agent's
			p.disk = recorded(p.path, t)
		}
	}
	done, err = v.disks.TakeWithin(ctx, p.disk.turn())
	if err != nil {
		return true, err
	}
	defer done()
	// Another disk of its target may have left it something since it was read; see handOver.
	if r, is := v.recordAt(p.path); is && r.ISCSI != nil {
		p.disk = r.ISCSI
	}
	if err := v.detach(ctx, p); err != nil {
		return true, fmt.Errorf("%s: failed to detach disk: %s: %w", p.disk.kind(), p.path, err)
	}
	return false, v.forget(p)
}

// used says whether a pod has what is in a place, by what is mounted and shown.
func (v *Volumes) used(p place) (bool, error) {
	if p.block {
		return v.shownToPods(p)
	}
	mounted, err := v.deps.Mounter.Mounted(p.path)
	if err != nil || !mounted {
		return false, err // what a pod may have still is not taken away: it is held open
	}
	found, err := filepath.Glob(filepath.Join(v.cfg.RootDir, "pods", "*", "volumes", "kubernetes.io~"+p.disk.kind(), "*"))
	if err != nil {
		return false, err
	}
	for _, dir := range found {
		mounted, err := v.deps.Mounter.Mounted(dir)
		if err != nil || mounted && v.deps.Same(p.path, dir) {
			return true, err
		}
	}
	return false, nil
}

// shownToPods says whether a device is shown to a pod; what is shown to one that is gone is
// taken away.
func (v *Volumes) shownToPods(p place) (bool, error) {
	entries, err := os.ReadDir(p.path)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.Name() == recordFile || e.IsDir() {
			continue
		}
		links, err := os.ReadDir(filepath.Join(v.cfg.RootDir, "pods", e.Name(), "volumeDevices", "kubernetes.io~"+p.disk.kind()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) || len(links) > 0 {
			return true, err
		}
		if err := v.hide(filepath.Join(p.path, e.Name())); err != nil {
			return true, err
		}
	}
	return false, nil
}

// detach takes a disk from the node, and ends the session with its target, unless somebody
// else has them. The caller has the disk's turn.
func (v *Volumes) detach(ctx context.Context, p place) error {
	all, err := v.left()
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(all, func(o place) bool { return o.path == p.path })
	// Who was refused a disk has nothing of it.
	if !p.others && !slices.ContainsFunc(others, func(o place) bool { return !o.others && o.disk.is(p.disk) }) {
		if err := v.release(ctx, p.disk); err != nil {
			return err
		}
	}
	t, is := p.disk.(*target)
	if !is {
		return nil
	}
	heirs := slices.DeleteFunc(others, func(o place) bool {
		other, is := o.disk.(*target)
		return !is || other.Iqn != t.Iqn || !slices.ContainsFunc(other.Portals, func(portal string) bool { return slices.Contains(t.Portals, portal) })
	})
	if len(heirs) > 0 {
		return v.handOver(ctx, t, heirs, others)
	}
	return v.logOut(ctx, t)
}

// release has the kernel forget a disk, with all paths to it.
func (v *Volumes) release(ctx context.Context, d disk) (err error) {
	var disks []string
	switch d := d.(type) {
	case *target:
		disks, err = v.disksOfTarget(d.Iqn, d.Lun)
	case *fabric:
		for _, name := range v.disksOfFabric(d) {
			of, slavesErr := v.slaves(name) // the link may be to the multipath device
			err = errors.Join(err, slavesErr)
			disks = append(disks, of...)
		}
		disks = append(disks, v.pathsOf(d, disks)...)
	}
	if err != nil {
		return err
	}
	for _, dm := range v.byMultipath(disks) {
		paths, err := v.slaves(dm)
		if err != nil {
			return err
		}
		device := filepath.Join(v.cfg.Dev, dm)
		if at, err := v.shownAt(dm); err != nil || at != "" {
			return errors.Join(err, fmt.Errorf("%s is in use still: it is shown at %s", device, at))
		}
		if held, err := v.do(ctx, d.turn(), callHeld, device); err != nil || held != "" {
			return errors.Join(err, fmt.Errorf("%s is in use still: it is mounted, or part of another device", device))
		}
		if _, err := v.deps.Run(ctx, "multipath", "-f", device); err != nil {
			return fmt.Errorf("failed to flush multipath device %s: %w", device, err)
		}
		disks = append(disks, paths...)
	}
	slices.Sort(disks)
	for _, name := range slices.Compact(disks) {
		// Who was given it as a device may hold it open as anybody may.
		if at, err := v.shownAt(name); err != nil || at != "" {
			return errors.Join(err, fmt.Errorf("%s is in use still: it is shown at %s", filepath.Join(v.cfg.Dev, name), at))
		}
		if _, err := v.do(ctx, d.turn(), callRelease, filepath.Join(v.cfg.Dev, name), filepath.Join(v.cfg.Sys, "block", name, "device/delete")); err != nil {
			return err
		}
	}
	return nil
}

// logOut ends the sessions with a target that were begun for its disk, unless a disk of the
// target is in use that nobody here knows of.
func (v *Volumes) logOut(ctx context.Context, t *target) error {
	sessions, err := v.sessions(t.Iqn)
	if err != nil {
		return err
	}
	var names, devices []string
	for _, s := range sessions {
		disks, err := disksOf(s, "*")
		if err != nil {
			return err
		}
		for _, name := range disks {
			names, devices = append(names, name), append(devices, filepath.Join(v.cfg.Dev, name))
		}
	}
	held, err := v.shownAt(names...)
	if held == "" && err == nil {
		held, err = v.do(ctx, t.turn(), callHeld, devices...)
	}
	if err != nil {
		return err
	}
	if held != "" {
		klog.FromContext(ctx).Info("The session with an iSCSI target stays: another disk of it is in use, which is of no pod", "path", held)
		return nil
	}
	cloned := map[string]bool{}
	if t.cloned() {
		cloned[t.Iface] = true
	}
	var failed []error
	for _, m := range v.all(t) {
		err := v.undo(ctx, t, m, sessions)
		if errors.Is(err, rpcerr.ErrUnavailable) && len(sessions) == 0 {
			return nil // it was never logged in to
		}
		failed = append(failed, err) // and the others end all the same
		if m.Cloned {
			cloned[m.Iface] = true
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	for _, iface := range slices.Sorted(maps.Keys(cloned)) {
		if _, err := v.iscsiadm(ctx, "-m", "iface", "-I", iface, "-o", "delete"); unless(err, codeNoObject, codeNoSession) != nil {
			return fmt.Errorf("delete the interface %s: %w", iface, err)
		}
	}
	return nil
}
