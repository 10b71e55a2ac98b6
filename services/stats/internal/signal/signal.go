// Package signal computes the eviction signals and says when they moved. It is
// pure: what they are measured with is passed in. It must never decide about pressure.
// Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#eviction-signals
package signal

import (
	"slices"
	"strings"
	"time"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/process"
)

// Signal is what is left of a resource.
type Signal struct {
	// Name is the kubelet's, e.g. memory.available.
	Name string
	// Available of Capacity is left: bytes, inodes or processes.
	Available, Capacity uint64
	// Idle is what of memory is used beside and can be given back at once.
	Idle uint64
	// Time is when it was measured.
	Time time.Time
}

// Memory is a cgroup's memory.
type Memory struct {
	// Limit is what it may use, WorkingSet what it does, in bytes; Idle what it uses beside
	// that can be given back at once.
	Limit, WorkingSet, Idle uint64
	// Time is when it was measured.
	Time time.Time
}

// Facts is what signals are computed from. What is nil is not known, and its
// signals are left out.
type Facts struct {
	// Node is the machine's memory; Pods that of all pods, nil when it is not limited.
	Node, Pods *Memory
	// Root, Image and Container are the filesystems of the root directory, of
	// images and of writable layers.
	Root, Image, Container *disk.Filesystem
	// Processes are the machine's process numbers, measured at Time.
	Processes *process.Numbers
	Time      time.Time
}

// Frame is what is left of everything, and where images and containers' layers are.
type Frame struct {
	// Signals are in name order.
	Signals []Signal
	// ImagesApart is whether images are on another filesystem than the root
	// directory, ContainersApart whether layers are on another than images.
	ImagesApart, ContainersApart bool
}

// Names of the signals of memory.
const (
	nodeMemory = "memory.available"
	podsMemory = "allocatableMemory.available"
)

// Compute returns the signals in name order.
func Compute(f Facts) []Signal {
	var out []Signal
	out = append(out, memory(nodeMemory, f.Node)...)
	out = append(out, memory(podsMemory, f.Pods)...)
	out = append(out, filesystem("nodefs", f.Root)...)
	out = append(out, filesystem("imagefs", f.Image)...)
	out = append(out, filesystem("containerfs", f.Container)...)
	if p := f.Processes; p != nil && p.Max > 0 {
		left := max(p.Max-p.Running, 0)
		out = append(out, Signal{Name: "pid.available", Available: uint64(left), Capacity: uint64(p.Max), Time: f.Time})
	}
	slices.SortFunc(out, func(a, b Signal) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func memory(name string, m *Memory) []Signal {
	if m == nil || m.Limit == 0 {
		return nil
	}
	available := uint64(0)
	if m.Limit > m.WorkingSet {
		available = m.Limit - m.WorkingSet
	}
	return []Signal{{Name: name, Available: available, Capacity: m.Limit, Idle: m.Idle, Time: m.Time}}
}

// filesystem gives the two signals of a filesystem; one without a fixed number
// of inodes has no signal for them.
func filesystem(name string, f *disk.Filesystem) []Signal {
	if f == nil {
		return nil
	}
	out := []Signal{{Name: name + ".available", Available: f.Available, Capacity: f.Capacity, Time: f.Time}}
	if f.Inodes > 0 {
		out = append(out, Signal{Name: name + ".inodesFree", Available: f.InodesFree, Capacity: f.Inodes, Time: f.Time})
	}
	return out
}

// resolution is the part of the capacity by which a signal has to move to be
// worth a frame of its own.
const resolution = 100

// Moved reports whether signals came or went or one moved by more than the
// resolution, a hundredth of its capacity.
func Moved(old, now []Signal) bool {
	if len(old) != len(now) {
		return true
	}
	for i := range now {
		a, b := old[i], now[i]
		if a.Name != b.Name || a.Capacity != b.Capacity {
			return true
		}
		difference := max(a.Available, b.Available) - min(a.Available, b.Available)
		if difference > b.Capacity/resolution {
			return true
		}
	}
	return false
}
