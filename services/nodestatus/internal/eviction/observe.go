package eviction

import (
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// Observe takes from a summary what it says of the signals. What it does not say is
// left out.
func Observe(s *statsapi.Summary) []pressure.Signal {
	var out []pressure.Signal
	memory := func(name string, m *statsapi.MemoryStats) {
		if m != nil && m.AvailableBytes != nil && m.WorkingSetBytes != nil {
			out = append(out, pressure.Signal{Name: name, Available: *m.AvailableBytes, Capacity: *m.AvailableBytes + *m.WorkingSetBytes, Time: m.Time.Time})
		}
	}
	filesystem := func(name string, f *statsapi.FsStats) {
		if f == nil {
			return
		}
		if f.AvailableBytes != nil && f.CapacityBytes != nil {
			out = append(out, pressure.Signal{Name: name + ".available", Available: *f.AvailableBytes, Capacity: *f.CapacityBytes, Time: f.Time.Time})
		}
		if f.InodesFree != nil && f.Inodes != nil && *f.Inodes > 0 {
			out = append(out, pressure.Signal{Name: name + ".inodesFree", Available: *f.InodesFree, Capacity: *f.Inodes, Time: f.Time.Time})
		}
	}
	memory(threshold.Memory, s.Node.Memory)
	for i := range s.Node.SystemContainers {
		if c := &s.Node.SystemContainers[i]; c.Name == statsapi.SystemContainerPods {
			memory(threshold.AllocatableMemory, c.Memory)
		}
	}
	filesystem("nodefs", s.Node.Fs)
	if r := s.Node.Runtime; r != nil {
		filesystem("imagefs", r.ImageFs)
		filesystem("containerfs", r.ContainerFs)
	}
	if r := s.Node.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil && *r.MaxPID > 0 {
		left := max(*r.MaxPID-*r.NumOfRunningProcesses, 0)
		out = append(out, pressure.Signal{Name: threshold.PID, Available: uint64(left), Capacity: uint64(*r.MaxPID), Time: r.Time.Time})
	}
	return out
}

// Confirm looks at a threshold that is met with what a summary says: again is the
// threshold with the summary's figures, and short whether they say so, too. What the
// summary does not mention is not confirmed.
func Confirm(m pressure.Met, observed []pressure.Signal) (again pressure.Met, short bool) {
	for _, signal := range observed {
		if signal.Name != m.Signal {
			continue
		}
		if !signal.Credible() {
			return m, false
		}
		m.By = signal
		return m, signal.Available < m.Enough(signal.Capacity)
	}
	return m, false
}
