// Package sampler joins cgroups with names: it lists the cgroups of the node,
// reads them when somebody asks, and says whose they are.
//
// Nothing is sampled for its own sake except the CPU counters, which a rate
// needs two of: one small file per cgroup, every 15 s while somebody asks and
// every 60 s while nobody does. That is why cAdvisor's manager is not used: it
// reads everything of every cgroup all the time, keeps two minutes of it, and
// takes names from a runtime socket that this process must never have.
package sampler

import (
	"time"

	"github.com/google/cadvisor/lib/model"

	"github.com/polylet/polylet/services/stats/internal/inventory"
)

// Kind is what a cgroup stands for.
type Kind int

// Kinds.
const (
	// Machine is the root cgroup.
	Machine Kind = iota
	// Group is a cgroup that belongs to no pod: kubepods and its QoS classes,
	// and what the configuration names.
	Group
	// Pod is a pod's cgroup.
	Pod
	// Sandbox is the cgroup of a pod's sandbox.
	Sandbox
	// Container is a container's cgroup.
	Container
)

// Target is a cgroup to read.
type Target struct {
	// Cgroup is its name, the path below the mount.
	Cgroup string
	// Kind is what it stands for.
	Kind Kind
	// ID is the CRI id of a sandbox or container, known to podsync or not.
	ID string
	// Pod is whose it is; empty for groups and while podsync has not named it.
	Pod inventory.Pod
	// Container and Image are a container's; empty for others.
	Container, Image string
	// StartTime is when the container started or the sandbox was created; of
	// the machine and of groups when the cgroup was made (from level Summary
	// on). Zero when not known.
	StartTime time.Time
}

// Row is one measured cgroup. It must not be changed.
type Row struct {
	Target
	// Stats is what was read; the parts that the Level asks for are set.
	Stats *model.ContainerStats
	// NanoCores is the CPU usage per second in nanoseconds; nil until two
	// counters were seen.
	NanoCores *uint64
	// Spec is set at level Full.
	Spec model.ContainerSpec
	// MemoryLimit is in bytes, 0 for none; SwapLimit too, nil for none, and of a
	// container no more than the machine has. Not set at level Basic.
	MemoryLimit uint64
	SwapLimit   *uint64
}

// Level is how much is read.
type Level int

// Levels, each with all of those before it.
const (
	// Basic is CPU and memory.
	Basic Level = iota
	// Summary adds limits, processes, pressure and network.
	Summary
	// Full is everything.
	Full
	levels
)
