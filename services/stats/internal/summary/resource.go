package summary

import (
	"github.com/google/cadvisor/lib/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/services/stats/internal/sampler"
)

func timeOf(row *sampler.Row) metav1.Time { return metav1.NewTime(row.Stats.Timestamp) }

func startTime(row *sampler.Row) metav1.Time { return metav1.NewTime(row.StartTime) }

func cpuStats(row *sampler.Row) *statsapi.CPUStats {
	return &statsapi.CPUStats{
		Time: timeOf(row), UsageCoreNanoSeconds: &row.Stats.Cpu.Usage.Total, UsageNanoCores: row.NanoCores,
		PSI: pressure(&row.Stats.Cpu.PSI),
	}
}

func memoryStats(row *sampler.Row) *statsapi.MemoryStats {
	m := row.Stats.Memory
	out := &statsapi.MemoryStats{
		Time: timeOf(row), UsageBytes: &m.Usage, WorkingSetBytes: &m.WorkingSet, RSSBytes: &m.RSS,
		PageFaults: &m.ContainerData.Pgfault, MajorPageFaults: &m.ContainerData.Pgmajfault, PSI: pressure(&m.PSI),
	}
	if row.MemoryLimit > 0 {
		available := uint64(0)
		if row.MemoryLimit > m.WorkingSet {
			available = row.MemoryLimit - m.WorkingSet
		}
		out.AvailableBytes = &available
	}
	return out
}

func swap(row *sampler.Row) *statsapi.SwapStats {
	out := &statsapi.SwapStats{Time: timeOf(row), SwapUsageBytes: &row.Stats.Memory.Swap}
	if row.SwapLimit != nil {
		available := uint64(0)
		if *row.SwapLimit > row.Stats.Memory.Swap {
			available = *row.SwapLimit - row.Stats.Memory.Swap
		}
		out.SwapAvailableBytes = &available
	}
	return out
}

func ioStats(row *sampler.Row) *statsapi.IOStats {
	if row.Stats.DiskIo == nil {
		return nil
	}
	return &statsapi.IOStats{Time: timeOf(row), PSI: pressure(&row.Stats.DiskIo.PSI)}
}

// pressure is zero where the kernel does not count it (cgroup v1), as with the
// kubelet: readers of the document rely on its being there.
func pressure(p *model.PSIStats) *statsapi.PSIStats {
	return &statsapi.PSIStats{Full: statsapi.PSIData(p.Full), Some: statsapi.PSIData(p.Some)}
}

// network shows all interfaces, and eth0 or else the first as the default one.
func network(row *sampler.Row) *statsapi.NetworkStats {
	if row.Stats.Network == nil {
		return nil
	}
	out := &statsapi.NetworkStats{Time: timeOf(row)}
	for i := range row.Stats.Network.Interfaces {
		n := &row.Stats.Network.Interfaces[i]
		s := statsapi.InterfaceStats{Name: n.Name, RxBytes: &n.RxBytes, RxErrors: &n.RxErrors, TxBytes: &n.TxBytes, TxErrors: &n.TxErrors}
		if i == 0 || n.Name == "eth0" {
			out.InterfaceStats = s
		}
		out.Interfaces = append(out.Interfaces, s)
	}
	return out
}

func processCount(row *sampler.Row) uint64 {
	if row.Stats.Processes == nil {
		return 0
	}
	return row.Stats.Processes.ProcessCount
}
