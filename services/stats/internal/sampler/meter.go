package sampler

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/cadvisor/lib/model"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/process"
)

const (
	// fresh is how old a measurement may be to be given again: scrapers that
	// come at the same moment share one.
	fresh = time.Second
	// busyPeriod and idlePeriod are between two looks at the CPU counters.
	busyPeriod = 15 * time.Second
	idlePeriod = 60 * time.Second
	// interest is how long after a question the busy period holds.
	interest = 2 * time.Minute
)

// Cgroups reads cgroups.
type Cgroups interface {
	Tree
	Read(name string, parts cgroup.Part) (*model.ContainerStats, error)
	CPU(name string) (uint64, bool)
	Spec(name string) model.ContainerSpec
	MemoryLimit(name string) uint64
	SwapLimit(name string) (uint64, bool)
	Created(name string) time.Time
	Threads(name string) uint64
	ThreadsMax(name string) uint64
	PIDs(name string) []int
}

// MachineInfo describes the machine.
type MachineInfo interface {
	Info() (*model.MachineInfo, error)
	FilesystemStats() ([]model.FsStats, error)
}

// Deps is what a Meter needs.
type Deps struct {
	Cgroups Cgroups
	Names   *inventory.Table
	Proc    process.Proc
	Machine MachineInfo
}

// Meter measures the node's cgroups. Safe for concurrent use.
type Meter struct {
	roots Roots
	deps  Deps
	rates rates
	// limits and details are read less often than they are asked for.
	limits  keeper[limits]
	details keeper[details]
	opened  *opened
	asked   atomic.Int64 // Unix nanoseconds of the last question.
	wake    wake.Signal
	share   time.Duration // fresh, but for benchmarks

	mu      sync.Mutex
	flights [levels]*flight
}

// flight is one measurement, under way or done.
type flight struct {
	done chan struct{}
	at   time.Time
	rows []Row
	err  error
}

// New returns a Meter; it starts nothing.
func New(roots Roots, deps Deps) *Meter {
	return &Meter{roots: roots, deps: deps, wake: wake.New(), share: fresh, opened: newOpened(deps.Proc.Files)}
}

// ShareFor sets how old a measurement may be to be given again. Call it before
// the first question.
func (m *Meter) ShareFor(d time.Duration) { m.share = d }

// Rows measures all cgroups at a level, the machine first, parents before
// children. Rows may be shared between callers.
func (m *Meter) Rows(ctx context.Context, level Level) ([]Row, error) {
	if before := m.asked.Swap(time.Now().UnixNano()); time.Since(time.Unix(0, before)) > interest {
		m.wake.Set() // Back to the busy period.
	}
	f, mine := m.join(level)
	if !mine {
		select {
		case <-f.done:
			return f.rows, f.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.rows, f.err = m.measure(ctx, level)
	m.mu.Lock()
	f.at = time.Now()
	if f.err != nil {
		m.flights[level] = nil
	}
	m.mu.Unlock()
	close(f.done)
	return f.rows, f.err
}

// join returns a flight to share, or a new one that the caller has to fly.
func (m *Meter) join(level Level) (f *flight, mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := level; l < levels; l++ {
		f := m.flights[l]
		if f != nil && (f.at.IsZero() || time.Since(f.at) < m.share) {
			return f, false
		}
	}
	f = &flight{done: make(chan struct{})}
	m.flights[level] = f
	return f, true
}

func (m *Meter) measure(ctx context.Context, level Level) ([]Row, error) {
	targets, err := list(m.deps.Cgroups, m.roots, m.deps.Names.View())
	if err != nil {
		return nil, err
	}
	counts, cancel := context.WithTimeout(ctx, countWait)
	defer cancel()
	reader := m.reader(ctx, counts, level)
	rows := make([]Row, len(targets))
	present := make([]bool, len(targets))
	inParallel(len(targets), func(i int) {
		rows[i], present[i] = reader.read(targets[i])
	})
	kept := rows[:0]
	for i := range rows {
		if present[i] {
			kept = append(kept, rows[i])
		}
	}
	return kept, nil
}

// inParallel calls do for 0..n-1 on as many threads as the process has; cgroup
// files are made up by the kernel as they are read, which takes CPU, not disk.
func inParallel(n int, do func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), 4, (n+15)/16)
	if workers <= 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// Run keeps the CPU counters going until ctx is done.
func (m *Meter) Run(ctx context.Context) error {
	timer := time.NewTimer(busyPeriod)
	defer timer.Stop()
	m.look(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-m.wake:
		}
		m.look(ctx)
		m.drop()
		period := idlePeriod
		if time.Since(time.Unix(0, m.asked.Load())) < interest {
			period = busyPeriod
		}
		timer.Reset(period)
	}
}

// look reads the CPU counters.
func (m *Meter) look(ctx context.Context) {
	targets, err := list(m.deps.Cgroups, m.roots, m.deps.Names.View())
	if err != nil {
		klog.FromContext(ctx).Error(err, "CPU counters were not read; rates will be missing until they are")
		return
	}
	for _, t := range targets {
		if total, ok := m.deps.Cgroups.CPU(t.Cgroup); ok {
			m.rates.observe(t.Cgroup, time.Now(), total)
		}
	}
	old := time.Now().Add(-3 * idlePeriod)
	m.rates.forget(old)
	m.limits.forget(old)
	m.details.forget(old)
	m.opened.forget(old)
}

// drop lets old measurements go: they are as large as the node is busy.
func (m *Meter) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, f := range m.flights {
		if f != nil && !f.at.IsZero() && time.Since(f.at) > fresh {
			m.flights[i] = nil
		}
	}
}

// Memory is the memory of one cgroup.
type Memory struct {
	// Usage is what it uses, WorkingSet that without what can be given back at once;
	// Limit what it may use, 0 for no limit; bytes.
	Usage, WorkingSet, Limit uint64
	// Time is when it was measured.
	Time time.Time
}

// Threads counts those of one cgroup and of all below it now; 0 where nobody does.
func (m *Meter) Threads(name string) uint64 { return m.deps.Cgroups.Threads(name) }

// Memory measures one cgroup now.
func (m *Meter) Memory(name string) (Memory, error) {
	stats, err := m.deps.Cgroups.Read(name, cgroup.WithoutCPU)
	if errors.Is(err, cgroup.ErrGone) { // it is there all the same where nothing counts memory
		stats, err = m.deps.Cgroups.Read(name, 0)
	}
	if err != nil {
		return Memory{}, err
	}
	out := Memory{Usage: stats.Memory.Usage, WorkingSet: stats.Memory.WorkingSet, Time: stats.Timestamp}
	if limit := m.deps.Cgroups.MemoryLimit(name); limit < 1<<62 {
		out.Limit = limit
	}
	return out, nil
}
