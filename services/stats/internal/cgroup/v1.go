package cgroup

import (
	"bytes"

	"github.com/google/cadvisor/lib/model"
)

func (h *Hierarchy) readV1(name string, parts Part, s *model.ContainerStats) bool {
	cpuacct, ok := h.Dir("cpuacct", name), false
	if parts&WithoutCPU == 0 {
		s.Cpu.Usage.Total, ok = readUint(cpuacct, "cpuacct.usage")
	}
	memory := h.Dir("memory", name)
	if h.readMemoryV1(memory, s.Memory) {
		ok = true
	}
	if !ok {
		return false
	}
	if parts&Throttling != 0 {
		readPairs(cpuacct, "cpuacct.stat", func(key []byte, value uint64) {
			switch string(key) {
			case "user":
				s.Cpu.Usage.User = value * nanosPerTick
			case "system":
				s.Cpu.Usage.System = value * nanosPerTick
			}
		})
		readPairs(h.Dir("cpu", name), "cpu.stat", func(key []byte, value uint64) {
			switch string(key) {
			case "nr_periods":
				s.Cpu.CFS.Periods = value
			case "nr_throttled":
				s.Cpu.CFS.ThrottledPeriods = value
			case "throttled_time":
				s.Cpu.CFS.ThrottledTime = value
			case "nr_bursts":
				s.Cpu.CFS.BurstsPeriods = value
			case "burst_time":
				s.Cpu.CFS.BurstTime = value
			}
		})
	}
	if parts&MemoryExtra != 0 {
		s.Memory.MaxUsage, _ = readUint(memory, "memory.max_usage_in_bytes")
		s.Memory.Failcnt, _ = readUint(memory, "memory.failcnt")
		s.Memory.KernelUsage, _ = readUint(memory, "memory.kmem.usage_in_bytes")
		s.OOMEvents = oomKills(memory, "memory.oom_control")
	}
	if parts&DiskIO != 0 {
		s.DiskIo = h.readDiskV1(h.Dir("blkio", name))
	}
	if parts&Processes != 0 {
		h.readProcesses(name, s)
	}
	return true
}

// readMemoryV1 takes the hierarchical counters ("total_…"): every kernel that
// Kubernetes supports counts hierarchically.
func (h *Hierarchy) readMemoryV1(dir string, m *model.MemoryStats) bool {
	usage, ok := readUint(dir, "memory.usage_in_bytes")
	if !ok {
		return false
	}
	m.Usage = usage
	readPairs(dir, "memory.stat", func(key []byte, value uint64) {
		switch string(key) {
		case "total_cache":
			m.Cache = value
		case "total_rss":
			m.RSS = value
		case "total_swap":
			m.Swap = value
		case "total_mapped_file":
			m.MappedFile = value
		case "pgfault":
			m.ContainerData.Pgfault = value
		case "pgmajfault":
			m.ContainerData.Pgmajfault = value
		case "total_active_file":
			m.TotalActiveFile = value
		case "total_inactive_file":
			m.TotalInactiveFile = value
		}
	})
	finishMemory(m)
	return true
}

// readDiskV1 takes the first scheduler's files that hold anything, as cAdvisor does.
func (h *Hierarchy) readDiskV1(dir string) *model.DiskIoStats {
	out := &model.DiskIoStats{}
	for _, prefix := range []string{"blkio.bfq.", "blkio.", "blkio.throttle."} {
		operations := readDevicesV1(dir, prefix+"io_serviced_recursive")
		if len(operations) == 0 {
			continue
		}
		out.IoServiced = operations
		out.IoServiceBytes = readDevicesV1(dir, prefix+"io_service_bytes_recursive")
		break
	}
	return out
}

// readDevicesV1 parses lines "major:minor operation value".
func readDevicesV1(dir, file string) []model.PerDiskStats {
	var out []model.PerDiskStats
	readFile(dir, file, func(data []byte) {
		for line := range bytes.Lines(data) {
			fields := bytes.Fields(line)
			if len(fields) != 3 {
				continue
			}
			value, ok := parseUint(fields[2])
			if !ok {
				continue
			}
			if disk := device(&out, fields[0]); disk != nil {
				disk.Stats[string(fields[1])] = value
			}
		}
	})
	return out
}

// device finds or adds the entry of a "major:minor".
func device(disks *[]model.PerDiskStats, number []byte) *model.PerDiskStats {
	a, b, found := bytes.Cut(number, []byte{':'})
	major, ok1 := parseUint(a)
	minor, ok2 := parseUint(b)
	if !found || !ok1 || !ok2 {
		return nil
	}
	for i := range *disks {
		if d := &(*disks)[i]; d.Major == major && d.Minor == minor {
			return d
		}
	}
	*disks = append(*disks, model.PerDiskStats{Major: major, Minor: minor, Stats: map[string]uint64{}})
	return &(*disks)[len(*disks)-1]
}

func (h *Hierarchy) readProcesses(name string, s *model.ContainerStats) {
	s.Processes = &model.ProcessStats{
		ThreadsCurrent: h.Threads(name), ThreadsMax: h.ThreadsMax(name), ProcessCount: uint64(len(h.PIDs(name))),
	}
}

// Threads is how many threads run in a cgroup and below it; 0 for the root,
// which does not count them.
func (h *Hierarchy) Threads(name string) uint64 {
	if name == root {
		return 0
	}
	n, _ := readUint(h.Dir("pids", name), "pids.current")
	return n
}

// ThreadsMax is how many there may be; 0 is no limit.
func (h *Hierarchy) ThreadsMax(name string) uint64 {
	if name == root {
		return 0
	}
	limit, _ := readUint(h.Dir("pids", name), "pids.max")
	if limit == unlimited {
		return 0
	}
	return limit
}
