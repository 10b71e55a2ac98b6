package scsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// Teardown implements volume.Driver: it takes a pod's mount away, also one that another
// agent has made. The disk stays until Settle.
func (v *Volumes) Teardown(ctx context.Context, r volume.Remains) error {
	mounted, err := v.deps.Mounter.Mounted(r.Dir)
	if err != nil {
		return err
	}
	var names []v1.UniqueVolumeName
	if mounted {
		if names, err = v.mountedFrom(r.Dir); err != nil {
			return err
		}
		if err := v.deps.Mounter.UnmountRemote(ctx, r.Dir); err != nil {
			return fmt.Errorf("volume %q: %w", r.Name, err)
		}
	}
	for _, path := range []string{r.Dir, v.recordOf(r.Dir)} {
		if err := removeOne(path); err != nil { // never what is in it
			return err
		}
	}
	v.dropLabel(r.Dir)
	v.settleSoon(names)
	return nil
}

func (v *Volumes) settleSoon(names []v1.UniqueVolumeName) {
	for _, name := range names {
		v.deps.InUse.SettleSoon(name)
	}
}

// mountedFrom are the volumes whose filesystem is mounted in a pod's directory.
func (v *Volumes) mountedFrom(dir string) (names []v1.UniqueVolumeName, err error) {
	all, err := v.left()
	for _, p := range all {
		if !p.block && v.deps.Same(p.path, dir) {
			names = append(names, p.disk.unique())
		}
	}
	return names, err
}

// Unmap implements volume.Mapper: it takes a device from a pod, also one that another agent
// has given. The link goes last: as long as it is there, this is done again.
func (v *Volumes) Unmap(_ context.Context, r volume.Remains) error {
	all, err := v.left()
	if err != nil {
		return err
	}
	var names []v1.UniqueVolumeName
	for _, p := range all {
		shown := filepath.Join(p.path, string(r.UID))
		if _, err := os.Lstat(shown); !p.block || err != nil || !leadsTo(r.Dir, shown) {
			continue
		}
		if err := v.hide(shown); err != nil {
			return fmt.Errorf("volume %q: %w", r.Name, err)
		}
		names = append(names, p.disk.unique())
	}
	if err := removeOne(r.Dir); err != nil {
		return err
	}
	v.settleSoon(names)
	return nil
}

// leadsTo says whether a link leads to the device that is shown at a path. One that leads
// nowhere any more may have.
func leadsTo(link, shown string) bool {
	var a, b unix.Stat_t
	if unix.Stat(link, &a) != nil || unix.Stat(shown, &b) != nil {
		return true
	}
	return a.Rdev == b.Rdev
}

// hide undoes show, also as a kubelet does it, which holds the device open.
func (v *Volumes) hide(shown string) error {
	if err := errors.Join(v.deps.Mounter.Release(shown), v.deps.Mounter.Unmount(shown)); err != nil {
		return err
	}
	return removeOne(shown)
}
