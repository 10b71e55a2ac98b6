package cgroup

import (
	"bytes"
	"errors"
	"io/fs"
	"time"

	"github.com/google/cadvisor/lib/model"
)

// Part is a set of what to read.
type Part uint

// Parts of a reading. Memory is always read, and CPU unless it is left out.
const (
	// Throttling is CFS periods and bursts, and user and system time.
	Throttling Part = 1 << iota
	// MemoryExtra is peaks, failure counts and OOM kills.
	MemoryExtra
	// DiskIO is bytes and operations by device.
	DiskIO
	// Pressure is PSI, where the kernel counts it per cgroup.
	Pressure
	// Processes is the number of processes and threads.
	Processes
	// WithoutCPU reads memory alone, for who does so every second: for a file about CPU the
	// kernel adds up what all cgroups below have used.
	WithoutCPU
)

// All is everything.
const All = Throttling | MemoryExtra | DiskIO | Pressure | Processes

// ErrGone says that the cgroup is not there (any more).
var ErrGone = errors.New("cgroup is gone")

const (
	root             = "/"
	nanosPerMicro    = 1000
	nanosPerTick     = 10_000_000 // USER_HZ is 100 on every Linux that Go runs on.
	bytesPerKibibyte = 1024
)

// Read measures a cgroup. The error is ErrGone when it is not there.
func (h *Hierarchy) Read(name string, parts Part) (*model.ContainerStats, error) {
	s := &model.ContainerStats{Timestamp: time.Now(), Cpu: &model.CpuStats{}, Memory: &model.MemoryStats{}}
	var ok bool
	if h.unified {
		ok = h.readV2(name, parts, s)
	} else {
		ok = h.readV1(name, parts, s)
	}
	if !ok {
		return nil, errors.Join(ErrGone, fs.ErrNotExist)
	}
	return s, nil
}

// CPU returns the CPU time that a cgroup has used, in nanoseconds; one file is read.
func (h *Hierarchy) CPU(name string) (nanoseconds uint64, ok bool) {
	if !h.unified {
		return readUint(h.Dir("cpuacct", name), "cpuacct.usage")
	}
	readPairs(h.Dir("", name), "cpu.stat", func(key []byte, value uint64) {
		if string(key) == "usage_usec" {
			nanoseconds, ok = value*nanosPerMicro, true
		}
	})
	return nanoseconds, ok
}

// PIDs returns the processes of a cgroup itself, not of those below it.
func (h *Hierarchy) PIDs(name string) []int {
	var pids []int
	dir := h.Dir("cpu", name)
	if dir == "" {
		dir = h.treeDir(name)
	}
	readFile(dir, "cgroup.procs", func(data []byte) {
		for line := range bytes.Lines(data) {
			if pid, ok := parseUint(bytes.TrimSpace(line)); ok && pid > 0 {
				pids = append(pids, int(pid))
			}
		}
	})
	return pids
}

// oomKills is how many processes of the cgroup itself the kernel has killed for
// lack of memory, whoever's limit it was; both versions have a line "oom_kill
// <number>". cAdvisor counts the same from the kernel's log, which another
// reader of the log or a full one can take from it.
func oomKills(dir, file string) (kills uint64) {
	readPairs(dir, file, func(key []byte, value uint64) {
		if string(key) == "oom_kill" {
			kills = value
		}
	})
	return kills
}

// finishMemory derives the working set: usage without the inactive file pages.
func finishMemory(m *model.MemoryStats) {
	m.WorkingSet = 0
	if m.Usage > m.TotalInactiveFile {
		m.WorkingSet = m.Usage - m.TotalInactiveFile
	}
	m.HierarchicalData.Pgfault = m.ContainerData.Pgfault
	m.HierarchicalData.Pgmajfault = m.ContainerData.Pgmajfault
}
