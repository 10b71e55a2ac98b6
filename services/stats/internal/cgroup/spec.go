package cgroup

import (
	"bytes"
	"time"

	"github.com/google/cadvisor/lib/model"
)

// Spec reads the limits of a cgroup and when it was created.
func (h *Hierarchy) Spec(name string) model.ContainerSpec {
	var spec model.ContainerSpec
	spec.CreationTime = h.creationTime(name)
	cpu, memory := h.Dir("cpu", name), h.Dir("memory", name)
	if h.unified {
		specV2(cpu, &spec)
	} else {
		specV1(cpu, memory, &spec)
	}
	spec.HasProcesses = true
	spec.HasDiskIo = true
	return spec
}

func specV1(cpu, memory string, spec *model.ContainerSpec) {
	if shares, ok := readUint(cpu, "cpu.shares"); ok {
		spec.HasCpu = true
		spec.Cpu.Limit = shares
		spec.Cpu.Period, _ = readUint(cpu, "cpu.cfs_period_us")
		if quota, ok := readUint(cpu, "cpu.cfs_quota_us"); ok && quota != unlimited {
			spec.Cpu.Quota = quota
		}
	}
	if limit, ok := readUint(memory, "memory.limit_in_bytes"); ok {
		spec.HasMemory = true
		spec.Memory.Limit = limit
		spec.Memory.SwapLimit, _ = readUint(memory, "memory.memsw.limit_in_bytes")
		spec.Memory.Reservation, _ = readUint(memory, "memory.soft_limit_in_bytes")
	}
}

func specV2(dir string, spec *model.ContainerSpec) {
	spec.HasCpu = true
	if weight, ok := readUint(dir, "cpu.weight"); ok && weight >= 1 && weight <= 10000 {
		// From weight's 1..10000 to the 2..262144 of shares, as cAdvisor reports it.
		spec.Cpu.Limit = 2 + (weight-1)*262142/9999
	}
	readFile(dir, "cpu.max", func(data []byte) {
		quota, period, _ := bytes.Cut(bytes.TrimSpace(data), []byte{' '})
		if q, ok := parseUint(quota); ok && q != unlimited {
			spec.Cpu.Quota = q
		}
		spec.Cpu.Period, _ = parseUint(period)
	})
	if limit, ok := readUint(dir, "memory.max"); ok {
		spec.HasMemory = true
		spec.Memory.Limit = limit
		spec.Memory.SwapLimit, _ = readUint(dir, "memory.swap.max")
		spec.Memory.Reservation, _ = readUint(dir, "memory.min")
	}
}

// Created is when a cgroup was made.
func (h *Hierarchy) Created(name string) time.Time { return h.creationTime(name) }

// creationTime is the older of the directory's time, which moves when children
// come and go, and that of a file in it which is not written after creation.
func (h *Hierarchy) creationTime(name string) time.Time {
	dir := h.treeDir(name)
	created, _ := modTime(dir)
	file := "/cgroup.clone_children"
	if h.unified {
		file = "/cgroup.events"
	}
	if t, ok := modTime(dir + file); ok && t.Before(created) {
		created = t
	}
	return created
}

// MemoryLimit reads only the memory limit; 0 or the largest number is none.
func (h *Hierarchy) MemoryLimit(name string) uint64 {
	file := "memory.limit_in_bytes"
	if h.unified {
		file = "memory.max"
	}
	limit, _ := readUint(h.Dir("memory", name), file)
	return limit
}

// SwapLimit returns how much swap a cgroup may use, in bytes, and whether it is limited.
func (h *Hierarchy) SwapLimit(name string) (limit uint64, limited bool) {
	if h.unified {
		limit, ok := readUint(h.Dir("", name), "memory.swap.max")
		return limit, ok && limit != unlimited
	}
	dir := h.Dir("memory", name)
	both, ok := readUint(dir, "memory.memsw.limit_in_bytes")
	memory, _ := readUint(dir, "memory.limit_in_bytes")
	if !ok || both >= 1<<62 || both < memory {
		return 0, false
	}
	return both - memory, true
}
