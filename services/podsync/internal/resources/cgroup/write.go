package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/resources"
)

// Files of cgroup v2 that protect memory: in any case, and as long as others have
// something to give.
const (
	memoryMin = "memory.min"
	memoryLow = "memory.low"
)

// wanted are the values of one cgroup; zero means none.
type wanted struct {
	shares       uint64
	quota        int64
	period       uint64
	memory, pids int64
	huge         map[string]int64
	// keepsMemory: what the cgroup may have of memory stays as it is.
	keepsMemory bool
	// protected are the files of cgroup v2 that say what of memory is protected; one that
	// is not named stays as it is.
	protected map[string]int64
}

// write makes a cgroup and gives it these values, unless it has them.
func (t *tree) write(n name, w wanted) error {
	m, err := t.open(n)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%+v", w)
	t.mu.Lock()
	before, known := t.applied[n.path()]
	t.mu.Unlock()
	exists := existsAny(m)
	if known && before == text && exists {
		return nil
	}
	if err := t.make(m); err != nil {
		return fmt.Errorf("make cgroup %s: %w", n.path(), err)
	}
	if err := m.Set(t.resources(m, w, exists)); err != nil {
		return fmt.Errorf("limit cgroup %s to %s: %w", n.path(), text, err)
	}
	t.mu.Lock()
	t.applied[n.path()] = text
	t.mu.Unlock()
	return nil
}

// resources are the values in the library's terms, without those whose
// controller the machine lacks. A cgroup that existed is freed of limits that
// are no longer wanted.
func (t *tree) resources(m cgroups.Manager, w wanted, existed bool) *cgroups.Resources {
	r := &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true}
	if t.has(m, "cpu") {
		r.CpuShares, r.CpuQuota, r.CpuPeriod = w.shares, w.quota, w.period
		if t.unified && w.shares > 0 {
			r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(w.shares)
		}
		if existed && w.quota == 0 {
			r.CpuQuota = -1
		}
	}
	if t.has(m, "memory") && !w.keepsMemory {
		r.Memory = w.memory
		if existed && w.memory == 0 {
			r.Memory = -1
		}
	}
	if t.unified && t.has(m, "memory") {
		for file, bytes := range w.protected {
			if r.Unified == nil {
				r.Unified = map[string]string{}
			}
			r.Unified[file] = strconv.FormatInt(bytes, 10)
		}
	}
	if t.has(m, "pids") {
		switch {
		case w.pids > 0:
			r.PidsLimit = &w.pids
		case existed:
			none := int64(-1)
			r.PidsLimit = &none
		}
	}
	if t.has(m, "hugetlb") {
		for size, limit := range w.huge {
			r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: size, Limit: uint64(limit)})
		}
		sort.Slice(r.HugetlbLimit, func(i, j int) bool { return r.HugetlbLimit[i].Pagesize < r.HugetlbLimit[j].Pagesize })
	}
	return r
}

// has says whether a controller can be used.
func (t *tree) has(m cgroups.Manager, controller string) bool {
	if t.unified {
		return slices.Contains(t.controllers, controller)
	}
	return m.Path(controller) != ""
}

// readBurst learns the shares of burstable pods from the kernel, for pods that
// were there before this process.
func (t *tree) readBurst() error {
	m, err := t.open(t.tier(v1.PodQOSBurstable))
	if err != nil {
		return err
	}
	dir, file := m.Path("cpu"), "cpu.shares"
	if t.unified {
		dir, file = m.Path(""), "cpu.weight"
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // not made yet, or no cpu controller
	}
	for _, e := range entries {
		uid, ok := t.podOf(e.Name())
		if !ok {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, e.Name(), file))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the shares of pod %s: %w", uid, err)
		}
		value, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
		if err != nil {
			return fmt.Errorf("read the shares of pod %s: %w", uid, err)
		}
		if t.unified {
			value = sharesOf(value)
		}
		t.mu.Lock()
		if _, known := t.burst[uid]; !known {
			t.burst[uid] = value
		}
		t.mu.Unlock()
	}
	return nil
}

// sharesOf turns a v2 weight back into the least shares that give it.
func sharesOf(weight uint64) uint64 {
	const most = 262144
	n := sort.Search(most, func(shares int) bool {
		return cgroups.ConvertCPUSharesToCgroupV2Value(uint64(shares)) >= weight
	})
	return uint64(min(n, most))
}

// share gives the burstable tier what its pods ask for together.
func (t *tree) share() error {
	t.sharing <- struct{}{}
	defer func() { <-t.sharing }()
	var sum uint64
	t.mu.Lock()
	for _, shares := range t.burst {
		sum += shares
	}
	w := t.burstable
	t.mu.Unlock()
	w.shares = min(max(sum, resources.Shares(0)), 262144)
	return t.write(t.tier(v1.PodQOSBurstable), w)
}

// kill sends SIGKILL to all processes in the cgroup and below, and says to how many.
func kill(m cgroups.Manager) int {
	pids := map[int]bool{}
	for _, dir := range m.GetPaths() {
		found, err := cgroups.GetAllPids(dir)
		if err != nil {
			continue // this hierarchy has none
		}
		for _, pid := range found {
			pids[pid] = true
		}
	}
	for pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // gone meanwhile is fine
	}
	return len(pids)
}
