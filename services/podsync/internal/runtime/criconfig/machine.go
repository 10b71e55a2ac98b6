package criconfig

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// machine is what never changes while the machine runs; it is looked at once.
type machine struct {
	once          sync.Once
	unified       bool     // cgroup v2
	swap          bool     // the swap controller is there
	swapBytes     int64    // of swap that the machine has
	throttlePaths []string // thermal throttle directories of the CPUs
	pageSizes     []string // of huge pages: 2MB, 1GB
}

func (m *machine) look() {
	m.once.Do(func() {
		m.unified = cgroups.IsCgroup2UnifiedMode()
		m.swap = hasSwapController(m.unified)
		m.swapBytes = swapTotal()
		m.throttlePaths, _ = filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle")
		m.pageSizes = cgroups.HugePageSizes()
	})
}

// limitSwap lets a container have so many bytes of swap beside its memory.
// Version 1 of cgroups limits both together, and cannot without a memory limit.
// Source: KEP-2400.
func (m *machine) limitSwap(r *runtimeapi.LinuxContainerResources, bytes int64) {
	switch {
	case !m.swap:
	case m.unified:
		if r.Unified == nil {
			r.Unified = map[string]string{}
		}
		r.Unified["memory.swap.max"] = strconv.FormatInt(bytes, 10)
	case r.MemoryLimitInBytes > 0:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes + bytes
	}
}

// hasSwapController looks into the cgroup that this process is in on v2, where
// the root one has no limits, and into the root one on v1.
func hasSwapController(unified bool) bool {
	if !unified {
		root, err := cgroups.FindCgroupMountpoint("", "memory")
		if err != nil {
			return false
		}
		_, err = os.Stat(filepath.Join(root, "memory.memsw.limit_in_bytes"))
		return err == nil
	}
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(raw)) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			_, err := os.Stat(filepath.Join("/sys/fs/cgroup", own, "memory.swap.max"))
			return err == nil
		}
	}
	return false
}

// swapTotal is how many bytes of swap the machine has; zero when it does not say.
func swapTotal() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Totalswap) * int64(info.Unit) //nolint:gosec // No machine has 8 EiB.
}
