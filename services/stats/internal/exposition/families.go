package exposition

import (
	"strconv"
	"time"

	"github.com/google/cadvisor/lib/model"

	"github.com/polylet/polylet/services/stats/internal/sampler"
)

// cadvisorFamilies are the families of a cgroup, in the order of the document.
// Names, types, labels and units are cAdvisor's, as the kubelet serves them.
// Source: https://github.com/google/cadvisor/blob/master/docs/storage/prometheus.md
var cadvisorFamilies = []family{
	{name: "container_last_seen", help: "Last time the container was seen, Unix time.", kind: gauge, one: func(r *sampler.Row) float64 { return float64(r.Stats.Timestamp.Unix()) }},
	{name: "container_health_state", help: "Result of the container's health check; -1 when it has none.", kind: gauge, one: func(r *sampler.Row) float64 { return -1 }},
	{name: "container_start_time_seconds", help: "When the container started, Unix time.", kind: gauge, untimed: true, one: func(r *sampler.Row) float64 { return startTime(r) }},
	{name: "container_spec_cpu_period", help: "CFS period in microseconds.", kind: gauge, when: hasCPU, untimed: true, one: func(r *sampler.Row) float64 { return float64(r.Spec.Cpu.Period) }},
	{name: "container_spec_cpu_quota", help: "CFS quota in microseconds per period.", kind: gauge, when: hasQuota, untimed: true, one: func(r *sampler.Row) float64 { return float64(r.Spec.Cpu.Quota) }},
	{name: "container_spec_cpu_shares", help: "CPU shares.", kind: gauge, when: hasCPU, untimed: true, one: func(r *sampler.Row) float64 { return float64(r.Spec.Cpu.Limit) }},
	{name: "container_spec_memory_limit_bytes", help: "Memory limit; 0 is none.", kind: gauge, when: hasMemory, untimed: true, one: func(r *sampler.Row) float64 { return limit(r.Spec.Memory.Limit) }},
	{name: "container_spec_memory_swap_limit_bytes", help: "Swap limit; 0 is none.", kind: gauge, when: hasMemory, untimed: true, one: func(r *sampler.Row) float64 { return limit(r.Spec.Memory.SwapLimit) }},
	{name: "container_spec_memory_reservation_limit_bytes", help: "Memory reservation; 0 is none.", kind: gauge, when: hasMemory, untimed: true, one: func(r *sampler.Row) float64 { return limit(r.Spec.Memory.Reservation) }},
	{name: "container_cpu_user_seconds_total", help: "CPU time used in user mode.", kind: counter, one: func(r *sampler.Row) float64 { return nanoseconds(r.Stats.Cpu.Usage.User) }},
	{name: "container_cpu_system_seconds_total", help: "CPU time used in the kernel.", kind: counter, one: func(r *sampler.Row) float64 { return nanoseconds(r.Stats.Cpu.Usage.System) }},
	{
		name: "container_cpu_usage_seconds_total", help: "CPU time used.", kind: counter, when: usedCPU, extra: []string{"cpu"},
		each: func(r *sampler.Row, sample func(float64, ...string)) {
			sample(nanoseconds(r.Stats.Cpu.Usage.Total), "total")
		},
	},
	{name: "container_cpu_cfs_periods_total", help: "Enforcement periods that passed.", kind: counter, when: hasQuota, one: func(r *sampler.Row) float64 { return float64(r.Stats.Cpu.CFS.Periods) }},
	{name: "container_cpu_cfs_throttled_periods_total", help: "Periods in which the container was throttled.", kind: counter, when: hasQuota, one: func(r *sampler.Row) float64 { return float64(r.Stats.Cpu.CFS.ThrottledPeriods) }},
	{name: "container_cpu_cfs_throttled_seconds_total", help: "Time that the container was throttled.", kind: counter, when: hasQuota, one: func(r *sampler.Row) float64 { return nanoseconds(r.Stats.Cpu.CFS.ThrottledTime) }},
	{name: "container_cpu_cfs_burst_periods_total", help: "Periods with a burst.", kind: counter, when: hasQuota, one: func(r *sampler.Row) float64 { return float64(r.Stats.Cpu.CFS.BurstsPeriods) }},
	{name: "container_cpu_cfs_burst_seconds_total", help: "Time spent in bursts.", kind: counter, when: hasQuota, one: func(r *sampler.Row) float64 { return nanoseconds(r.Stats.Cpu.CFS.BurstTime) }},
	{name: "container_memory_cache", help: "Page cache.", kind: gauge, one: func(r *sampler.Row) float64 { return float64(r.Stats.Memory.Cache) }},
	{name: "container_memory_rss", help: "Anonymous memory.", kind: gauge, one: func(r *sampler.Row) float64 { return float64(r.Stats.Memory.RSS) }},
	{name: "container_memory_kernel_usage", help: "Memory of the kernel.", kind: gauge, one: func(r *sampler.Row) float64 { return float64(r.Stats.Memory.KernelUsage) }},
	{name: "container_memory_mapped_file", help: "Mapped files.", kind: gauge, one: func(r *sampler.Row) float64 { return float64(r.Stats.Memory.MappedFile) }},
	{name: "container_memory_swap", help: "Swap in use.", kind: gauge, one: func(r *sampler.Row) float64 { return float64(r.Stats.Memory.Swap) }},
	{name: "container_memory_failcnt", help: "How often the limit was hit.", kind: counter, one: func(r *sampler.Row) float64 { return float64(r.Stats.Memory.Failcnt) }},
	{name: "container_memory_usage_bytes", help: "Memory in use, whenever it was last touched.", kind: gauge, one: func(r *sampler.Row) float64 { return float64(r.Stats.Memory.Usage) }},
	{name: "container_memory_max_usage_bytes", help: "Most memory that was ever in use.", kind: gauge, one: func(r *sampler.Row) float64 { return float64(r.Stats.Memory.MaxUsage) }},
	{name: "container_memory_working_set_bytes", help: "Memory in use less inactive file pages.", kind: gauge, one: func(r *sampler.Row) float64 { return float64(r.Stats.Memory.WorkingSet) }},
	{name: "container_memory_total_active_file_bytes", help: "Active file pages.", kind: gauge, one: func(r *sampler.Row) float64 { return float64(r.Stats.Memory.TotalActiveFile) }},
	{name: "container_memory_total_inactive_file_bytes", help: "Inactive file pages.", kind: gauge, one: func(r *sampler.Row) float64 { return float64(r.Stats.Memory.TotalInactiveFile) }},
	{
		name: "container_memory_failures_total", help: "Page faults.", kind: counter, extra: []string{"failure_type", "scope"},
		each: func(r *sampler.Row, sample func(float64, ...string)) {
			m := r.Stats.Memory
			sample(float64(m.ContainerData.Pgfault), "pgfault", "container")
			sample(float64(m.ContainerData.Pgmajfault), "pgmajfault", "container")
			sample(float64(m.HierarchicalData.Pgfault), "pgfault", "hierarchy")
			sample(float64(m.HierarchicalData.Pgmajfault), "pgmajfault", "hierarchy")
		},
	},
	fileFamily("container_fs_inodes_free", "Inodes that are free.", gauge, func(f *model.FsStats) float64 { return float64(f.InodesFree) }),
	fileFamily("container_fs_inodes_total", "Inodes.", gauge, func(f *model.FsStats) float64 { return float64(f.Inodes) }),
	fileFamily("container_fs_limit_bytes", "Size of the filesystem.", gauge, func(f *model.FsStats) float64 { return float64(f.Limit) }),
	fileFamily("container_fs_usage_bytes", "Space that is taken.", gauge, func(f *model.FsStats) float64 { return float64(f.Usage) }),
	ioFamily("container_fs_reads_bytes_total", "Bytes read.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoServiceBytes }, "Read", plain, nil),
	ioFamily("container_fs_reads_total", "Reads completed.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoServiced }, "Read", plain, func(f *model.FsStats) float64 { return float64(f.ReadsCompleted) }),
	ioFamily("container_fs_sector_reads_total", "Sectors read.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.Sectors }, "Read", plain, func(f *model.FsStats) float64 { return float64(f.SectorsRead) }),
	ioFamily("container_fs_reads_merged_total", "Reads merged.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoMerged }, "Read", plain, func(f *model.FsStats) float64 { return float64(f.ReadsMerged) }),
	ioFamily("container_fs_read_seconds_total", "Time spent on reads.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoServiceTime }, "Read", nanoseconds, func(f *model.FsStats) float64 { return float64(f.ReadTime) / float64(time.Second) }),
	ioFamily("container_fs_writes_bytes_total", "Bytes written.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoServiceBytes }, "Write", plain, nil),
	ioFamily("container_fs_writes_total", "Writes completed.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoServiced }, "Write", plain, func(f *model.FsStats) float64 { return float64(f.WritesCompleted) }),
	ioFamily("container_fs_sector_writes_total", "Sectors written.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.Sectors }, "Write", plain, func(f *model.FsStats) float64 { return float64(f.SectorsWritten) }),
	ioFamily("container_fs_writes_merged_total", "Writes merged.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoMerged }, "Write", plain, func(f *model.FsStats) float64 { return float64(f.WritesMerged) }),
	ioFamily("container_fs_write_seconds_total", "Time spent on writes.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoServiceTime }, "Write", nanoseconds, func(f *model.FsStats) float64 { return float64(f.WriteTime) / float64(time.Second) }),
	ioFamily("container_fs_io_current", "Operations under way.", gauge, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoQueued }, "Total", plain, func(f *model.FsStats) float64 { return float64(f.IoInProgress) }),
	ioFamily("container_fs_io_time_seconds_total", "Time with operations under way.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoServiceTime }, "Total", nanoseconds, func(f *model.FsStats) float64 { return float64(f.IoTime) / float64(time.Second) }),
	fileFamily("container_fs_io_time_weighted_seconds_total", "Weighted time with operations under way.", counter, func(f *model.FsStats) float64 { return float64(f.WeightedIoTime) / float64(time.Second) }),
	ioFamily("container_fs_io_cost_usage_seconds_total", "IO cost: usage.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoCostUsage }, "Count", microseconds, nil),
	ioFamily("container_fs_io_cost_wait_seconds_total", "IO cost: wait.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoCostWait }, "Count", microseconds, nil),
	ioFamily("container_fs_io_cost_indebt_seconds_total", "IO cost: indebt.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoCostIndebt }, "Count", microseconds, nil),
	ioFamily("container_fs_io_cost_indelay_seconds_total", "IO cost: indelay.", counter, func(d *model.DiskIoStats) []model.PerDiskStats { return d.IoCostIndelay }, "Count", microseconds, nil),
	{
		name: "container_blkio_device_usage_total", help: "Bytes by block device and operation.", kind: counter, when: hasDiskIO,
		extra: []string{"device", "major", "minor", "operation"},
		each: func(r *sampler.Row, sample func(float64, ...string)) {
			for _, disk := range r.Stats.DiskIo.IoServiceBytes {
				major, minor := strconv.FormatUint(disk.Major, 10), strconv.FormatUint(disk.Minor, 10)
				for _, operation := range operations {
					if value, ok := disk.Stats[operation]; ok {
						sample(float64(value), disk.Device, major, minor, operation)
					}
				}
			}
		},
	},
	networkFamily("container_network_receive_bytes_total", "Bytes received.", func(i *model.InterfaceStats) uint64 { return i.RxBytes }),
	networkFamily("container_network_receive_packets_total", "Packets received.", func(i *model.InterfaceStats) uint64 { return i.RxPackets }),
	networkFamily("container_network_receive_packets_dropped_total", "Packets dropped.", func(i *model.InterfaceStats) uint64 { return i.RxDropped }),
	networkFamily("container_network_receive_errors_total", "Errors.", func(i *model.InterfaceStats) uint64 { return i.RxErrors }),
	networkFamily("container_network_transmit_bytes_total", "Bytes sent.", func(i *model.InterfaceStats) uint64 { return i.TxBytes }),
	networkFamily("container_network_transmit_packets_total", "Packets sent.", func(i *model.InterfaceStats) uint64 { return i.TxPackets }),
	networkFamily("container_network_transmit_packets_dropped_total", "Packets dropped.", func(i *model.InterfaceStats) uint64 { return i.TxDropped }),
	networkFamily("container_network_transmit_errors_total", "Errors.", func(i *model.InterfaceStats) uint64 { return i.TxErrors }),
	{name: "container_processes", help: "Processes.", kind: gauge, when: hasProcess, one: func(r *sampler.Row) float64 { return float64(r.Stats.Processes.ProcessCount) }},
	{name: "container_file_descriptors", help: "Open files.", kind: gauge, when: hasProcess, one: func(r *sampler.Row) float64 { return float64(r.Stats.Processes.FdCount) }},
	{name: "container_sockets", help: "Open sockets.", kind: gauge, when: hasProcess, one: func(r *sampler.Row) float64 { return float64(r.Stats.Processes.SocketCount) }},
	{name: "container_threads_max", help: "Most threads allowed; 0 is no limit.", kind: gauge, when: hasProcess, one: func(r *sampler.Row) float64 { return float64(r.Stats.Processes.ThreadsMax) }},
	{name: "container_threads", help: "Threads.", kind: gauge, when: hasProcess, one: func(r *sampler.Row) float64 { return float64(r.Stats.Processes.ThreadsCurrent) }},
	{
		name: "container_ulimits_soft", help: "Soft limits of the container's first process; -1 is no limit.", kind: gauge, when: hasProcess,
		extra: []string{"ulimit"},
		each: func(r *sampler.Row, sample func(float64, ...string)) {
			for _, u := range r.Stats.Processes.Ulimits {
				sample(float64(u.SoftLimit), u.Name)
			}
		},
	},
	{name: "container_oom_events_total", help: "Times that the container ran out of memory.", kind: counter, one: func(r *sampler.Row) float64 { return float64(r.Stats.OOMEvents) }},
}

// pressureFamilies are there only where the kernel counts pressure per cgroup.
var pressureFamilies = []family{
	{name: "container_pressure_cpu_stalled_seconds_total", help: "Time that no task of the container could go on for lack of cpu.", kind: counter, one: func(r *sampler.Row) float64 { return microseconds(r.Stats.Cpu.PSI.Full.Total) }},
	{name: "container_pressure_cpu_waiting_seconds_total", help: "Time that some task of the container waited for lack of cpu.", kind: counter, one: func(r *sampler.Row) float64 { return microseconds(r.Stats.Cpu.PSI.Some.Total) }},
	{name: "container_pressure_memory_stalled_seconds_total", help: "Time that no task of the container could go on for lack of memory.", kind: counter, one: func(r *sampler.Row) float64 { return microseconds(r.Stats.Memory.PSI.Full.Total) }},
	{name: "container_pressure_memory_waiting_seconds_total", help: "Time that some task of the container waited for lack of memory.", kind: counter, one: func(r *sampler.Row) float64 { return microseconds(r.Stats.Memory.PSI.Some.Total) }},
	{name: "container_pressure_io_stalled_seconds_total", help: "Time that no task of the container could go on for lack of io.", kind: counter, when: hasDiskIO, one: func(r *sampler.Row) float64 { return microseconds(r.Stats.DiskIo.PSI.Full.Total) }},
	{name: "container_pressure_io_waiting_seconds_total", help: "Time that some task of the container waited for lack of io.", kind: counter, when: hasDiskIO, one: func(r *sampler.Row) float64 { return microseconds(r.Stats.DiskIo.PSI.Some.Total) }},
}

// operations are those that the kernel counts by block device.
var operations = [...]string{"Async", "Discard", "Read", "Sync", "Total", "Write"}

func plain(v uint64) float64 { return float64(v) }

func fileFamily(name, help string, kind metricType, value func(*model.FsStats) float64) family {
	return family{
		name: name, help: help, kind: kind, when: hasFiles, extra: []string{"device"},
		each: func(r *sampler.Row, sample func(float64, ...string)) {
			for i := range r.Stats.Filesystem {
				sample(value(&r.Stats.Filesystem[i]), r.Stats.Filesystem[i].Device)
			}
		},
	}
}

// ioFamily has a sample for each device in one of the cgroup's tables, and on
// the machine's row one for each filesystem (unless file is nil).
func ioFamily(name, help string, kind metricType, table func(*model.DiskIoStats) []model.PerDiskStats, operation string,
	convert func(uint64) float64, file func(*model.FsStats) float64,
) family {
	return family{
		name: name, help: help, kind: kind, when: hasDiskIO, extra: []string{"device"},
		each: func(r *sampler.Row, sample func(float64, ...string)) {
			for _, disk := range table(r.Stats.DiskIo) {
				sample(convert(disk.Stats[operation]), disk.Device)
			}
			if file == nil {
				return
			}
			for i := range r.Stats.Filesystem {
				sample(file(&r.Stats.Filesystem[i]), r.Stats.Filesystem[i].Device)
			}
		},
	}
}

func networkFamily(name, help string, value func(*model.InterfaceStats) uint64) family {
	return family{
		name: name, help: help, kind: counter, when: hasNetwork, extra: []string{"interface"},
		each: func(r *sampler.Row, sample func(float64, ...string)) {
			for i := range r.Stats.Network.Interfaces {
				sample(float64(value(&r.Stats.Network.Interfaces[i])), r.Stats.Network.Interfaces[i].Name)
			}
		},
	}
}
