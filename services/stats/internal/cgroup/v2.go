package cgroup

import (
	"bytes"
	"math"

	"github.com/google/cadvisor/lib/model"
)

const unlimited = math.MaxUint64

func (h *Hierarchy) readV2(name string, parts Part, s *model.ContainerStats) bool {
	dir, ok := h.Dir("", name), false
	if parts&WithoutCPU == 0 {
		ok = readPairs(dir, "cpu.stat", func(key []byte, value uint64) { setCPUV2(s.Cpu, key, value) })
	}
	if h.readMemoryV2(dir, name, s.Memory) {
		ok = true
	}
	if !ok {
		return false
	}
	if parts&MemoryExtra != 0 {
		s.Memory.MaxUsage, _ = readUint(dir, "memory.peak")
		s.OOMEvents = oomKills(dir, "memory.events.local")
	}
	if parts&DiskIO != 0 {
		s.DiskIo = readDiskV2(dir)
	}
	if parts&Pressure != 0 {
		if s.DiskIo == nil {
			s.DiskIo = &model.DiskIoStats{}
		}
		readPressure(dir, "cpu.pressure", &s.Cpu.PSI)
		readPressure(dir, "memory.pressure", &s.Memory.PSI)
		readPressure(dir, "io.pressure", &s.DiskIo.PSI)
	}
	if parts&Processes != 0 {
		h.readProcesses(name, s)
	}
	return true
}

func setCPUV2(c *model.CpuStats, key []byte, value uint64) {
	switch string(key) {
	case "usage_usec":
		c.Usage.Total = value * nanosPerMicro
	case "user_usec":
		c.Usage.User = value * nanosPerMicro
	case "system_usec":
		c.Usage.System = value * nanosPerMicro
	case "nr_periods":
		c.CFS.Periods = value
	case "nr_throttled":
		c.CFS.ThrottledPeriods = value
	case "throttled_usec":
		c.CFS.ThrottledTime = value * nanosPerMicro
	case "nr_bursts":
		c.CFS.BurstsPeriods = value
	case "burst_usec":
		c.CFS.BurstTime = value * nanosPerMicro
	}
}

func (h *Hierarchy) readMemoryV2(dir, name string, m *model.MemoryStats) bool {
	ok := readPairs(dir, "memory.stat", func(key []byte, value uint64) {
		switch string(key) {
		case "file":
			m.Cache = value
		case "anon":
			m.RSS = value
		case "file_mapped":
			m.MappedFile = value
		case "pgfault":
			m.ContainerData.Pgfault = value
		case "pgmajfault":
			m.ContainerData.Pgmajfault = value
		case "active_file":
			m.TotalActiveFile = value
		case "inactive_file":
			m.TotalInactiveFile = value
		}
	})
	if !ok {
		return false
	}
	if name == root {
		// The root has no memory.current; v1 counted anonymous and file pages there.
		m.Usage = m.RSS + m.Cache
		m.Swap = machineSwapUsed()
	} else {
		m.Usage, _ = readUint(dir, "memory.current")
		m.Swap, _ = readUint(dir, "memory.swap.current")
	}
	finishMemory(m)
	return true
}

// machineSwapUsed is SwapTotal less SwapFree of /proc/meminfo, in bytes.
func machineSwapUsed() uint64 {
	var total, free uint64
	readFile("/proc", "meminfo", func(data []byte) {
		for line := range bytes.Lines(data) {
			fields := bytes.Fields(line)
			if len(fields) < 2 {
				continue
			}
			switch string(fields[0]) {
			case "SwapTotal:":
				total, _ = parseUint(fields[1])
			case "SwapFree:":
				free, _ = parseUint(fields[1])
			}
		}
	})
	if free > total {
		return 0
	}
	return (total - free) * bytesPerKibibyte
}

// readDiskV2 maps io.stat to v1's tables, as cAdvisor does.
func readDiskV2(dir string) *model.DiskIoStats {
	out := &model.DiskIoStats{}
	readFile(dir, "io.stat", func(data []byte) {
		for line := range bytes.Lines(data) {
			fields := bytes.Fields(line)
			if len(fields) < 2 {
				continue
			}
			for _, item := range fields[1:] {
				key, number, _ := bytes.Cut(item, []byte{'='})
				value, ok := parseUint(number)
				if !ok {
					continue
				}
				if table, operation := tableV2(out, string(key)); table != nil {
					if disk := device(table, fields[0]); disk != nil {
						disk.Stats[operation] = value
					}
				}
			}
		}
	})
	return out
}

func tableV2(d *model.DiskIoStats, key string) (table *[]model.PerDiskStats, operation string) {
	switch key {
	case "rbytes":
		return &d.IoServiceBytes, "Read"
	case "wbytes":
		return &d.IoServiceBytes, "Write"
	case "rios":
		return &d.IoServiced, "Read"
	case "wios":
		return &d.IoServiced, "Write"
	case "cost.usage":
		return &d.IoCostUsage, "Count"
	case "cost.wait":
		return &d.IoCostWait, "Count"
	case "cost.indebt":
		return &d.IoCostIndebt, "Count"
	case "cost.indelay":
		return &d.IoCostIndelay, "Count"
	}
	return nil, ""
}

// readPressure parses "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" and "full …".
func readPressure(dir, file string, out *model.PSIStats) {
	readFile(dir, file, func(data []byte) {
		for line := range bytes.Lines(data) {
			fields := bytes.Fields(line)
			if len(fields) < 2 {
				continue
			}
			target := &out.Some
			if string(fields[0]) == "full" {
				target = &out.Full
			}
			for _, item := range fields[1:] {
				key, value, _ := bytes.Cut(item, []byte{'='})
				switch string(key) {
				case "avg10":
					target.Avg10 = parseDecimal(value)
				case "avg60":
					target.Avg60 = parseDecimal(value)
				case "avg300":
					target.Avg300 = parseDecimal(value)
				case "total":
					target.Total, _ = parseUint(value)
				}
			}
		}
	})
}

// HasPressure reports whether the kernel counts pressure per cgroup.
func (h *Hierarchy) HasPressure() bool {
	return h.unified && readFile(h.Dir("", root), "cpu.pressure", func([]byte) {})
}
