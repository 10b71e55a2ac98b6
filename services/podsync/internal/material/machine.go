package material

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"
)

// machine is what never changes while the machine runs; it is looked at once.
type machine struct {
	once          sync.Once
	unified       bool     // cgroup v2
	swap          bool     // the swap controller is there (v2)
	throttlePaths []string // thermal throttle directories of the CPUs
	pageSizes     []string // of huge pages: 2MB, 1GB
}

func (m *machine) look() {
	m.once.Do(func() {
		m.unified = cgroups.IsCgroup2UnifiedMode()
		m.swap = m.unified && hasSwapController()
		m.throttlePaths, _ = filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle")
		m.pageSizes = cgroups.HugePageSizes()
	})
}

// hasSwapController looks into the cgroup that this process is in: the root one has no limits.
func hasSwapController() bool {
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
