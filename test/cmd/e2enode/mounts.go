package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// overlaid are directories of the machine that the run sees and may change
// without the machine noticing. A checkout may be below /tmp, so that is seen, too.
var overlaid = []string{"/etc", "/var/lib", "/var/log", "/tmp"}

// private are directories that the run has of its own, by their place in the
// instance's directory. They are on a disk: overlayfs needs one under
// containerd, and the agent's figures of its file system come from there.
var private = []struct{ point, dir string }{
	{"/var/lib/kubelet", "kubelet"}, {"/var/lib/containerd", "containerd"}, {"/var/log/pods", "pod-logs"},
}

// kernelSettings are the machine's, and an agent sets them: the run sees files
// of its own in their place.
var kernelSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// makeMounts gives the mount namespace everything that the run must have of its
// own. Nothing of it reaches the machine's mounts.
func makeMounts(o order) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("take the mounts apart from the machine's: %w", err)
	}
	artifacts, err := unix.Open(o.Artifacts, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", o.Artifacts, err)
	}
	defer unix.Close(artifacts)
	for _, step := range []func(order) error{mountDisk, mountKernel, mountCgroups, mountRun, mountOverlays, mountPrivate} {
		if err := step(o); err != nil {
			return err
		}
	}
	// What is written there stays, even where an overlay lies above it.
	if err := mount(fmt.Sprintf("/proc/self/fd/%d", artifacts), o.Artifacts, "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	// Mount propagation between the node and its containers.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make the run's mounts shared: %w", err)
	}
	return nil
}

func mountKernel(o order) error {
	for _, m := range []struct{ kind, point string }{{"proc", "/proc"}, {"sysfs", "/sys"}} {
		// What stood there goes: mountinfo must show each cgroup hierarchy once.
		if err := syscall.Unmount(m.point, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("take away the machine's %s: %w", m.point, err)
		}
		if err := mount(m.kind, m.point, m.kind, syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
			return err
		}
	}
	for _, name := range kernelSettings {
		point, file := filepath.Join("/proc/sys", name), o.path("sysctl", name)
		value, err := os.ReadFile(point)
		if errors.Is(err, fs.ErrNotExist) {
			continue // not of this kernel
		}
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, value, 0o644); err != nil {
			return err
		}
		if err := mount(file, point, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// mountCgroups mounts each hierarchy of the machine once more, where it was: the
// cgroup namespace's root is then its root. The list of them was in /sys, which
// is a new one by now.
func mountCgroups(o order) error {
	f, err := os.Open(o.path("mountinfo"))
	if err != nil {
		return err
	}
	defer f.Close()
	all, err := readHierarchies(f)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("the machine has no cgroups mounted")
	}
	if filepath.Dir(all[0].point) == cgroupTop {
		if err := mount("tmpfs", cgroupTop, "tmpfs", 0, "mode=755"); err != nil {
			return err
		}
	}
	for _, h := range all {
		if err := os.MkdirAll(h.point, 0o755); err != nil {
			return err
		}
		if err := mount(h.kind, h.point, h.kind, syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, h.data); err != nil {
			return err
		}
	}
	return nil
}

const cgroupTop = "/sys/fs/cgroup"

func mountRun(order) error {
	if err := mount("tmpfs", "/run", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755"); err != nil {
		return err
	}
	for _, dir := range []string{"/run/lock", "/run/netns"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func mountOverlays(o order) error {
	for _, point := range overlaid {
		upper, work := o.path("over", point, "upper"), o.path("over", point, "work")
		for _, dir := range []string{upper, work} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		if err := mount("overlay", point, "overlay", 0, "lowerdir="+point+",upperdir="+upper+",workdir="+work); err != nil {
			return err
		}
	}
	return nil
}

// diskDir is where a run's own file system is mounted, in the instance's directory.
const diskDir = "disk"

// mountDisk gives a run that fills its disk one of its own: a file with a file
// system, whose loop device ends with the mount namespace. What others write to
// the machine's disk meanwhile is not seen there, and it cannot be filled.
func mountDisk(o order) error {
	if o.DiskBytes == 0 {
		return nil
	}
	file, point := o.path(diskDir+".img"), o.path(diskDir)
	if err := os.MkdirAll(point, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(file, o.DiskBytes); err != nil {
		return fmt.Errorf("make a disk for the run: %w", err)
	}
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard", file},
		{"mount", "-o", "loop,discard", file, point},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("make a disk for the run: %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

func mountPrivate(o order) error {
	base := o.Dir
	if o.DiskBytes > 0 {
		base = o.path(diskDir)
	}
	for _, m := range private {
		source := filepath.Join(base, m.dir)
		for _, dir := range []string{m.point, source} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		if err := mount(source, m.point, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, point, kind string, flags uintptr, data string) error {
	if err := syscall.Mount(source, point, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s (%s %s) on %s: %w", source, kind, data, point, err)
	}
	return nil
}
