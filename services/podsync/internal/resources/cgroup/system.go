package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
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
	// apply moves a process; cgroups.Manager's but in tests.
	apply func(to cgroups.Manager, pid int) error
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
	log, failed := klog.FromContext(ctx), ""
	for {
		moved, err := s.move()
		if err != nil {
			if failed != err.Error() {
				failed = err.Error()
				log.Error(err, "The system's processes are not moved into their cgroup; it is tried again", "every", systemPeriod.String())
			}
			s.Health.Set("systemCgroups", false, err.Error())
		} else {
			failed = ""
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
// systemd would lose it.
func (s System) move() (moved int, err error) {
	root, name := path.Join("/", s.root), path.Join("/", s.Name)
	if name == root {
		return 0, errors.New("systemCgroups: it must not be the root")
	}
	if host, err := onHost(os.Getpid()); err != nil || !host {
		return 0, errors.Join(err, errors.New("systemCgroups: this process sees the cgroups of a container only; run podsync in the host's cgroup namespace, or leave systemCgroups out"))
	}
	apply := s.apply
	if apply == nil {
		apply = cgroups.Manager.Apply
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
		var first error // One that cannot be moved keeps no other.
		for _, pid := range pids {
			err := apply(to, pid)
			switch {
			case err == nil:
				moved++
			case errors.Is(err, unix.ESRCH): // It has ended.
			case first != nil:
			case errors.Is(err, unix.EPERM):
				first = fmt.Errorf("systemCgroups: move process %d from cgroup %s to %s: %w; it takes CAP_SYS_NICE to move one that has more rights than this process: give it to podsync (polylet-podsync.service does), or leave systemCgroups out", pid, root, name, err)
			default:
				first = fmt.Errorf("systemCgroups: move process %d from cgroup %s to %s: %w", pid, root, name, err)
			}
		}
		if first != nil {
			return moved, first
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
		// One that has ended is in none; one that is elsewhere is a systemd unit's.
		if own, err := Of(pid); err == nil && own == root {
			out = append(out, pid)
		}
	}
	return out, nil
}

// kernelThread is the flag of one in the kernel's own words, PF_KTHREAD.
const kernelThread = 0x00200000

// ofKernel says whether a process is the kernel's, or has ended. What its program is may
// be hidden from who has not all of root's rights; its flags are not.
func ofKernel(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// The name, in brackets, may have anything in it; then state and six numbers.
	_, rest, _ := strings.Cut(string(raw[bytes.LastIndexByte(raw, ')')+1:]), " ")
	fields := strings.Fields(rest)
	const flags = 6
	if len(fields) <= flags {
		return true
	}
	n, err := strconv.ParseUint(fields[flags], 10, 64)
	return err != nil || n&kernelThread != 0
}
