// Package kernel holds what podsync asks of the machine's kernel before it runs
// pods: no swap unless that is wanted, the cgroup hierarchy that was asked for,
// and the settings that Kubernetes' accounting of memory rests on.
//
// It must never change anything but the settings that it lists, and it knows
// nothing of pods.
package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// Config says what the machine must be like. The zero value asks for nothing.
type Config struct {
	// FailSwapOn refuses a machine that has swap on.
	FailSwapOn bool
	// FailCgroupV1 refuses a machine whose main hierarchy is cgroup v1.
	FailCgroupV1 bool
	// Tunables says what is done about settings that differ.
	Tunables Behaviour
}

// Machine is where the kernel is asked.
type Machine struct {
	// Proc is the proc filesystem; /proc when empty.
	Proc string
	// CgroupV2 says whether the main hierarchy is the unified one; nil looks.
	CgroupV2 func() bool
}

func (m Machine) proc(parts ...string) string {
	proc := m.Proc
	if proc == "" {
		proc = "/proc"
	}
	return filepath.Join(append([]string{proc}, parts...)...)
}

// Unified says whether the main hierarchy of cgroups is v2.
func (m Machine) Unified() bool {
	if m.CgroupV2 != nil {
		return m.CgroupV2()
	}
	return cgroups.IsCgroup2UnifiedMode()
}

// Check says why no pods may run on this machine; nil when they may. It changes
// nothing.
func (m Machine) Check(cfg Config) error {
	var errs []error
	if cfg.FailCgroupV1 && !m.Unified() {
		errs = append(errs, errors.New("kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be removed in a future release: boot with systemd.unified_cgroup_hierarchy=1, or set failCgroupV1 to false"))
	}
	if cfg.FailSwapOn {
		on, err := m.SwapOn()
		if err != nil {
			errs = append(errs, fmt.Errorf("failed to determine if swap is on: %w", err))
		}
		if on {
			errs = append(errs, errors.New("running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"))
		}
	}
	if cfg.Tunables == Refuse {
		errs = append(errs, m.differing()...)
	}
	return errors.Join(errs...)
}

// SwapOn says whether the machine swaps; a kernel without swap does not.
func (m Machine) SwapOn() (bool, error) {
	data, err := os.ReadFile(m.proc("swaps"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	// Below the header stands a line for each device or file.
	return bytes.Count(bytes.TrimSpace(data), []byte("\n")) > 0, err
}

// NoSwapMounts says whether a tmpfs can be kept from being swapped out. It asks
// the kernel and mounts nothing.
func NoSwapMounts() bool {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fd) //nolint:errcheck // Nothing was made through it.
	return unix.FsconfigSetFlag(fd, "noswap") == nil
}

// CgroupV1Warning is what a node says that runs on cgroup v1.
const CgroupV1Warning = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate to cgroup v2. " +
	"More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1"

// SwapWarning is what a node says whose volumes in memory may be swapped out.
const SwapWarning = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) " +
	"might be swapped to disk and should no longer be considered secure."
