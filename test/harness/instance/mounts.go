package instance

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// unescape undoes what the kernel does to blanks in mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Mounts returns the mount points below the instance's directory, in the order
// they were made.
func (i *Instance) Mounts() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var points []string
	for line := range bytes.Lines(data) {
		fields := strings.Fields(string(line))
		if len(fields) < 5 {
			continue
		}
		if point := unescape.Replace(fields[4]); strings.HasPrefix(point, i.Dir+"/") {
			points = append(points, point)
		}
	}
	return points, nil
}

// unmountAll unmounts the newest first, and looks again: a mount may hide one.
func (i *Instance) unmountAll() error {
	for range 10 {
		points, err := i.Mounts()
		if err != nil || len(points) == 0 {
			return err
		}
		for n := len(points) - 1; n >= 0; n-- {
			if err := syscall.Unmount(points[n], syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
				return fmt.Errorf("unmount %s: %w", points[n], err)
			}
		}
	}
	return errors.New("mounts keep appearing; is its containerd still running?")
}

// Cgroups returns the directories of the instance's cgroup root, one for each
// hierarchy that has it.
func (i *Instance) Cgroups() ([]string, error) {
	const top = "/sys/fs/cgroup"
	candidates := []string{filepath.Join(top, i.CgroupRoot())}
	hierarchies, err := filepath.Glob(top + "/*" + i.CgroupRoot())
	if err != nil {
		return nil, err
	}
	var found []string
	for _, dir := range append(candidates, hierarchies...) {
		if _, err := os.Stat(dir); err == nil {
			found = append(found, dir)
		}
	}
	return found, nil
}

// MakeCgroups makes the instance's cgroup root in every hierarchy, as the upstream
// kubelet wants to find it. A real runtime's first container makes it, too.
func (i *Instance) MakeCgroups() error {
	const top = "/sys/fs/cgroup"
	hierarchies := []string{top}
	if _, err := os.Stat(filepath.Join(top, "cgroup.controllers")); err != nil {
		if hierarchies, err = filepath.Glob(top + "/*"); err != nil {
			return err
		}
	}
	for _, h := range hierarchies {
		if err := os.MkdirAll(filepath.Join(h, i.CgroupRoot()), 0o755); err != nil {
			return fmt.Errorf("make the cgroup root of instance %s: %w", i.ID, err)
		}
	}
	return nil
}

func (i *Instance) removeCgroups() error {
	roots, err := i.Cgroups()
	if err != nil {
		return fmt.Errorf("find cgroups: %w", err)
	}
	for _, root := range roots {
		if err := removeCgroup(root); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroup removes a cgroup with all below it. A cgroup stays busy for a
// moment after its last process has died.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for range 1500 { // half a minute
		err = syscall.Rmdir(dir)
		if err == nil || errors.Is(err, syscall.ENOENT) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("remove cgroup %s: %w", dir, err)
}
