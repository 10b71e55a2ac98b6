package scsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// ofNobody refuses a disk that something else of the node has: whoever makes pods may name
// any disk of the node, such as the one that its own system is on. A filesystem that is
// mounted for pods already is not refused.
func (v *Volumes) ofNobody(ctx context.Context, d disk, device string) error {
	name := v.named(device)
	if name == "" {
		return fmt.Errorf("%s leads to no device any more", device)
	}
	at, err := v.deps.Shown(name)
	if err != nil {
		return err
	}
	for _, path := range at {
		if v.ours(path) {
			return nil
		}
	}
	by := ""
	if len(at) > 0 {
		by = at[0]
	} else if by, err = v.do(ctx, d.turn(), callHeld, filepath.Join(v.cfg.Dev, v.wholeOf(name))); err != nil {
		return err
	}
	if by != "" {
		return podstate.VolumeSpec.Wrap(&othersDisk{device: device, by: by})
	}
	return nil
}

// othersDisk says that a disk is something else's.
type othersDisk struct{ device, by string }

func (o *othersDisk) Error() string {
	return fmt.Sprintf("%s is a disk that this node has in use for something else (%s), and a volume in a pod's own spec gets no such disk; correct the volume", o.device, o.by)
}

// ours says whether a path is where a disk's filesystem is for all pods. Who has a disk as a
// device shares it with nobody's filesystem.
func (v *Volumes) ours(path string) bool {
	plugins := v.plugins()
	if at, err := filepath.EvalSymlinks(plugins); err == nil {
		plugins = at // the kernel's table of mounts has no links
	}
	for _, kind := range []string{iscsi, fc} {
		if below, is := strings.CutPrefix(path, filepath.Join(plugins, kind)+"/"); is {
			return !strings.HasPrefix(below, devicesDir+"/")
		}
	}
	return false
}

// shownAt is the first of some devices, by their names, that is mounted or shown somewhere.
func (v *Volumes) shownAt(names ...string) (at string, err error) {
	for _, name := range names {
		if paths, err := v.deps.Shown(name); err != nil || len(paths) > 0 {
			return strings.Join(paths[:min(1, len(paths))], ""), err
		}
	}
	return "", nil
}

// wholeOf is the disk that a partition is of; itself when it is none.
func (v *Volumes) wholeOf(name string) string {
	at, err := filepath.EvalSymlinks(filepath.Join(v.cfg.Sys, "class/block", name))
	if err != nil || text(at, "partition") == "" {
		return name
	}
	return filepath.Base(filepath.Dir(at))
}

// shown says where a device's filesystem is mounted, and where the device itself is shown
// beside its own place.
func shown(dev, name string) (paths []string, err error) {
	var of, below unix.Stat_t
	switch err := unix.Stat(filepath.Join(dev, name), &of); {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, &os.PathError{Op: "stat", Path: filepath.Join(dev, name), Err: err}
	}
	if err := unix.Stat(dev, &below); err != nil {
		return nil, &os.PathError{Op: "stat", Path: dev, Err: err}
	}
	is := func(m *mountinfo.Info, number uint64) bool {
		return m.Major == int(unix.Major(number)) && m.Minor == int(unix.Minor(number))
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !is(m, of.Rdev) && (!is(m, below.Dev) || m.Root != "/"+name), false
	})
	if err != nil {
		return nil, fmt.Errorf("look for where %q is mounted: %w", name, err)
	}
	for _, m := range mounts {
		paths = append(paths, m.Mountpoint)
	}
	return paths, nil
}
