// Package summary builds the kubelet's /stats/summary document from what was
// measured. It is pure: it must never do I/O or read a clock.
// Source: k8s.io/kubelet/pkg/apis/stats/v1alpha1
package summary

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/process"
	"github.com/polylet/polylet/services/stats/internal/sampler"
)

// SystemContainer is a group that the document shows under a name of its own.
type SystemContainer struct{ Name, Cgroup string }

// Facts is what the document is made of.
type Facts struct {
	// NodeName and BootTime describe the node.
	NodeName string
	BootTime time.Time
	// Rows are the measured cgroups, Pods those that run. Of who is to have what has ended
	// counted, too, Pods are all that are left and have those containers: the document
	// shows them without CPU and memory, and older instances without their names, for
	// those count for no limit.
	Rows []sampler.Row
	Pods []inventory.PresentPod
	// System are the system containers to show.
	System []SystemContainer
	// Disk is nil for the document of CPU and memory only.
	Disk *Disk
}

// Disk is what the document says beside CPU and memory.
type Disk struct {
	// Root is the filesystem of the root directory; Image and Container those
	// of the runtime, nil when not known.
	Root             disk.Filesystem
	Image, Container *RuntimeFilesystem
	// Layers are writable layers by container id.
	Layers map[string]disk.Usage
	// Directories are log directories, volumes and what pods own, by path.
	Directories map[string]disk.Measured
	// Driven are volumes that their drivers have measured.
	Driven map[disk.Volume]disk.Driven
	// Own are the paths that count as a pod's ephemeral storage beside its
	// containers and volumes, by UID: its hosts file and its own log files.
	Own map[string][]string
	// Unweighed are the pods, by UID, of which not all layers were weighed since the time
	// that was asked for, and Unmeasured those of whose directories not all were measured:
	// they may have more. The document does not say so.
	Unweighed, Unmeasured []string
	// Unsure are the pods, by UID, whose figures are not all of the same time, or of what others
	// have a part in, where nothing was measured anew.
	Unsure []string
	// Numbers are the process numbers.
	Numbers process.Numbers
	Time    time.Time
}

// RuntimeFilesystem is a filesystem of the runtime and what it uses of it.
type RuntimeFilesystem struct {
	disk.Filesystem
	Usage disk.Usage
}

// Build makes the document.
func Build(f Facts) *statsapi.Summary {
	b := builder{Facts: f, byCgroup: map[string]*sampler.Row{}, byID: map[string]*sampler.Row{}, byPod: map[string]*sampler.Row{}}
	for i := range f.Rows {
		row := &f.Rows[i]
		b.byCgroup[row.Cgroup] = row
		if row.ID != "" {
			b.byID[row.ID] = row
		}
		if row.Kind == sampler.Pod {
			b.byPod[row.Pod.UID] = row
		}
	}
	out := &statsapi.Summary{Node: b.node(), Pods: make([]statsapi.PodStats, 0, len(f.Pods))}
	for _, pod := range f.Pods {
		out.Pods = append(out.Pods, b.pod(pod))
	}
	return out
}

type builder struct {
	Facts
	byCgroup, byID, byPod map[string]*sampler.Row
}

func (b *builder) node() statsapi.NodeStats {
	out := statsapi.NodeStats{NodeName: b.NodeName, StartTime: metav1.NewTime(b.BootTime)}
	if row := b.byCgroup["/"]; row != nil {
		if b.Disk == nil {
			out.StartTime = startTime(row) // As the kubelet has it in this variant.
		}
		out.CPU, out.Memory, out.Swap = cpuStats(row), memoryStats(row), swap(row)
		if b.Disk != nil {
			out.IO, out.Network = ioStats(row), network(row)
		}
	}
	for _, s := range b.System {
		if row := b.byCgroup[s.Cgroup]; row != nil {
			out.SystemContainers = append(out.SystemContainers, statsapi.ContainerStats{
				Name: s.Name, StartTime: startTime(row), CPU: cpuStats(row), Memory: memoryStats(row), Swap: swap(row),
			})
		}
	}
	if b.Disk == nil {
		return out
	}
	out.Fs = filesystem(b.Disk.Root)
	if b.Disk.Image != nil {
		out.Runtime = &statsapi.RuntimeStats{ImageFs: runtimeFilesystem(b.Disk.Image), ContainerFs: runtimeFilesystem(b.Disk.Container)}
	}
	out.Rlimit = &statsapi.RlimitStats{
		Time: metav1.NewTime(b.Disk.Time), MaxPID: &b.Disk.Numbers.Max, NumOfRunningProcesses: &b.Disk.Numbers.Running,
	}
	return out
}

func (b *builder) pod(p inventory.PresentPod) statsapi.PodStats {
	ref := p.Sandbox.Pod
	out := statsapi.PodStats{
		PodRef:    statsapi.PodReference{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID},
		StartTime: metav1.NewTime(p.Sandbox.CreateTime), Containers: []statsapi.ContainerStats{},
	}
	var processes uint64
	var rows []*sampler.Row
	sandbox := b.byID[p.Sandbox.ID]
	for _, c := range p.Containers {
		row := b.byID[c.ID]
		out.Containers = append(out.Containers, b.container(c, row))
		if row != nil {
			rows = append(rows, row)
			processes += processCount(row)
		}
	}
	if row := b.byPod[ref.UID]; row != nil {
		out.CPU, out.Memory, out.Swap = cpuStats(row), memoryStats(row), swap(row)
		if b.Disk != nil {
			out.IO = ioStats(row)
		}
	} else {
		b.sum(&out, rows)
	}
	if b.Disk == nil {
		return out
	}
	if sandbox != nil {
		processes += processCount(sandbox)
		out.Network = network(sandbox)
	}
	if p.Sandbox.ID != "" { // Else nobody knows.
		out.ProcessStats = &statsapi.ProcessStats{ProcessCount: &processes}
	}
	for _, c := range p.Ended {
		out.Containers = append(out.Containers, b.container(c, nil))
	}
	b.storage(p, &out)
	for _, c := range p.Older {
		out.Containers = append(out.Containers, statsapi.ContainerStats{StartTime: metav1.NewTime(c.StartTime), Rootfs: b.rootfs(c.ID)})
	}
	return out
}

func (b *builder) container(c inventory.Container, row *sampler.Row) statsapi.ContainerStats {
	out := statsapi.ContainerStats{Name: c.Name, StartTime: metav1.NewTime(c.StartTime)}
	if row != nil {
		out.CPU, out.Memory, out.Swap = cpuStats(row), memoryStats(row), swap(row)
		if b.Disk != nil {
			out.IO = ioStats(row)
		}
	}
	if b.Disk != nil {
		out.Rootfs, out.Logs = b.rootfs(c.ID), b.directory(c.LogDir)
	}
	return out
}

// sum adds the containers of a pod that has no cgroup of its own.
func (b *builder) sum(out *statsapi.PodStats, rows []*sampler.Row) {
	if len(rows) == 0 {
		return
	}
	var cpu statsapi.CPUStats
	var memory statsapi.MemoryStats
	for _, row := range rows {
		c, m := cpuStats(row), memoryStats(row)
		cpu.Time, memory.Time = c.Time, m.Time
		add(&cpu.UsageCoreNanoSeconds, c.UsageCoreNanoSeconds)
		add(&cpu.UsageNanoCores, c.UsageNanoCores)
		add(&memory.UsageBytes, m.UsageBytes)
		add(&memory.WorkingSetBytes, m.WorkingSetBytes)
		add(&memory.RSSBytes, m.RSSBytes)
		add(&memory.PageFaults, m.PageFaults)
		add(&memory.MajorPageFaults, m.MajorPageFaults)
	}
	out.CPU, out.Memory = &cpu, &memory
}

func add(sum **uint64, value *uint64) {
	if value == nil {
		return
	}
	if *sum == nil {
		*sum = new(uint64)
	}
	**sum += *value
}
