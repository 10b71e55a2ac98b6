package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
)

// ErrInUse says that the pods' cgroups stand, and that all pods or those of a class use
// more memory than is left to them: they have what they use, and no more.
var ErrInUse = errors.New("more memory is in use than is left by what is reserved")

// setTiers gives the classes of pods what they may have; nil leaves what they have of
// memory.
func (t *tree) setTiers(tiers *Tiers) error {
	best, burst := wanted{shares: 2, keepsMemory: tiers == nil}, wanted{keepsMemory: tiers == nil}
	if tiers == nil {
		tiers = &Tiers{}
	} else if t.cfg.MemoryQoS.On {
		burst.protected = map[string]int64{memoryLow: tiers.Low}
	}
	var inUse []error
	for _, c := range []struct {
		class v1.PodQOSClass
		most  int64
		w     *wanted
	}{{v1.PodQOSBurstable, tiers.Burstable, &burst}, {v1.PodQOSBestEffort, tiers.BestEffort, &best}} {
		var err error
		if c.w.memory, err = t.bearable(t.tier(c.class), c.most); errors.Is(err, ErrInUse) {
			inUse = append(inUse, err)
		} else if err != nil {
			return err
		}
	}
	if err := t.write(t.tier(v1.PodQOSBestEffort), best); err != nil {
		return err
	}
	t.mu.Lock()
	t.burstable = burst
	t.mu.Unlock()
	if err := t.share(); err != nil {
		return err
	}
	return errors.Join(inUse...)
}

// bearable is a limit for what is in a cgroup that kills nothing there: no less than is
// in use and cannot be given back. With less than is wanted it is ErrInUse.
func (t *tree) bearable(n name, most int64) (int64, error) {
	m, err := t.open(n)
	if err != nil {
		return 0, err
	}
	if most <= 0 || !existsAny(m) || !t.has(m, "memory") {
		return most, nil
	}
	used, err := t.number(m, "memory", "memory.usage_in_bytes", "memory.current")
	if err != nil || used <= most {
		return most, err
	}
	files, err := t.cached(m)
	if err != nil {
		return 0, err
	}
	// Some may be allocated until the limit is written.
	const margin = 1 << 20
	bound := used - files + margin
	limit, err := t.number(m, "memory", "memory.limit_in_bytes", "memory.max")
	if err != nil {
		return 0, err
	}
	if limit > most { // It is tried again and again, and must not grow by the margin each time.
		bound = min(bound, limit)
	}
	if bound > most {
		return bound, fmt.Errorf("%w: cgroup %s uses %d bytes beside caches, %d are left to it", ErrInUse, n.path(), used-files, most)
	}
	return most, nil
}

// cached is how much of a cgroup's memory are caches of files, which the kernel gives
// back.
func (t *tree) cached(m cgroups.Manager) (int64, error) {
	file, names := filepath.Join(m.Path("memory"), "memory.stat"), [...]string{"total_inactive_file", "total_active_file"}
	if t.unified {
		file, names = filepath.Join(m.Path(""), "memory.stat"), [...]string{"inactive_file", "active_file"}
	}
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var sum int64
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		if key != names[0] && key != names[1] {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %s: %w", file, key, err)
		}
		sum += n
	}
	return sum, lines.Err()
}
