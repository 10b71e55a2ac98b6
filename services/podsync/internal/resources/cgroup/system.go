package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/health"
)

// System moves the machine's processes that are in no cgroup into one (systemCgroups).
type System struct {
	// Name is the cgroup's path from the root of the hierarchies. It is made when it is
	// not there.
	Name string
	// Health is told when processes cannot be moved.
	Health health.Reporter

	// root is the cgroup that they are moved from; "" is that of the machine.
	root string
}

const (
	// systemPeriod is between two looks for new ones: nothing tells of them.
	systemPeriod = time.Minute
	// rounds is how often processes are looked for that were started while others were
	// moved.
	rounds = 10
)

// Run moves processes until ctx is done.
func (s System) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	for {
		moved, err := s.move()
		if err != nil {
			s.Health.Set("systemCgroups", false, err.Error())
		} else {
			s.Health.Set("systemCgroups", true, "")
		}
		if moved > 0 {
			log.Info("Moved processes of the system into its cgroup", "cgroup", s.Name, "processes", moved)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(systemPeriod):
		}
	}
}

// move moves those that there are, and says how many.
//
// The first process and those of the kernel stay: the kernel's threads work for all.
// What a systemd unit has stays, too, also where only systemd's own hierarchy counts it:
// systemd would lose it. And what sees another hierarchy, for it is in a container.
func (s System) move() (moved int, err error) {
	root, name := path.Join("/", s.root), path.Join("/", s.Name)
	if name == root {
		return 0, errors.New("systemCgroups: it must not be the root")
	}
	for range rounds {
		pids, err := s.found(root)
		if err != nil || len(pids) == 0 {
			return moved, err
		}
		to, err := manager.New(&cgroups.Cgroup{Path: name, Resources: &cgroups.Resources{SkipDevices: true}})
		if err != nil {
			return moved, fmt.Errorf("systemCgroups: cgroup %s: %w", name, err)
		}
		for _, pid := range pids {
			if err := to.Apply(pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return moved, fmt.Errorf("systemCgroups: move process %d from cgroup %s to %s: %w", pid, root, name, err)
			}
			moved++
		}
	}
	return moved, nil
}

// found are the processes that are to be moved.
func (s System) found(root string) ([]int, error) {
	from, err := manager.New(&cgroups.Cgroup{Path: root, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return nil, fmt.Errorf("systemCgroups: look for the cgroup hierarchies: %w", err)
	}
	dir := from.Path("cpu")
	if cgroups.IsCgroup2UnifiedMode() {
		dir = from.Path("")
	}
	all, err := cgroups.GetPids(dir)
	if err != nil {
		return nil, fmt.Errorf("systemCgroups: list the processes of cgroup %s: %w", root, err)
	}
	var out []int
	for _, pid := range all {
		if pid == 1 || ofKernel(pid) {
			continue
		}
		own, err := Of(pid)
		if err != nil || own != root { // It has ended, or is a systemd unit's.
			continue
		}
		if host, err := onHost(pid); err == nil && host {
			out = append(out, pid)
		}
	}
	return out, nil
}

// ofKernel says whether a process is the kernel's, or has ended: it has no program.
func ofKernel(pid int) bool {
	_, err := os.Readlink(filepath.Join("/proc", fmt.Sprint(pid), "exe"))
	return errors.Is(err, fs.ErrNotExist)
}
