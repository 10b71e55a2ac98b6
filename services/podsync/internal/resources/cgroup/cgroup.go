// Package cgroup makes and removes the cgroups of pods and of their quality of
// service tiers, for cgroup v1 and v2 and for both naming drivers.
//
// It owns everything below <cgroupRoot>/kubepods but the containers' own
// cgroups, which the runtime makes. Outside it only limits the cgroups that the
// configuration reserves something for; it must never make or remove one there.
package cgroup

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/resources"
)

// Driver is how cgroups are named.
type Driver string

// The drivers.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// Config of a Tree.
type Config struct {
	// Root is cgroupRoot; empty means "/".
	Root   string
	Driver Driver
	// EnforcePods limits kubepods to the node's allocatable (enforceNodeAllocatable has
	// "pods"); its share of cpu it has in any case.
	EnforcePods bool
	// PodPidsLimit is pids.max of each pod; zero or less for none.
	PodPidsLimit int64
	// CPUCFSQuota sets cpu quotas from limits.
	CPUCFSQuota bool
	// CPUCFSQuotaPeriodMicros is the period; zero means 100,000.
	CPUCFSQuotaPeriodMicros uint64
	// MemoryQoS protects memory, on cgroup v2.
	MemoryQoS resources.MemoryQoS
}

// Limits are what kubepods as a whole may use; a zero field sets no limit.
type Limits struct {
	MilliCPU    int64
	MemoryBytes int64
	PIDs        int64
	// HugePages by page size in bytes.
	HugePages map[int64]int64
	// Reserved are cgroups of others that may use no more than what is kept for them.
	Reserved []Reserved
	// Tiers are of the classes of pods; nil leaves them as they are.
	Tiers *Tiers
}

// Tiers is what pods of a class have of memory together, in bytes.
type Tiers struct {
	// Burstable and BestEffort is what pods of these classes may use; zero for no limit.
	Burstable, BestEffort int64
	// Min is what of all pods' is protected in any case, and Low what of burstable ones'
	// is as long as others have something to give; on cgroup v2 with MemoryQoS only: without
	// it what others have protected stays.
	Min, Low int64
}

// Reserved is what the cgroup of the system's or of Kubernetes' own programs
// may use. The cgroup is somebody else's: it is never made and never removed.
type Reserved struct {
	// Kind is what the configuration calls it: system-reserved or kube-reserved.
	Kind string
	// Cgroup is its path from the root of the hierarchies, e.g. /system.slice.
	Cgroup string
	// MilliCPU is a share; MemoryBytes and PIDs are limits. Zero sets none.
	MilliCPU, MemoryBytes, PIDs int64
}

// Manager is the cgroups of pods; safe for concurrent use.
type Manager interface {
	// Setup makes kubepods and the QoS tiers, with the limits; call it once at
	// start and again when the limits change.
	Setup(ctx context.Context, limits Limits) error
	// ParentOf is the CRI cgroup parent of the pod's containers. It makes and
	// writes nothing, and may wait until the node's cgroups stand.
	ParentOf(ctx context.Context, pod *v1.Pod) (parent string, err error)
	// Ensure makes the pod's cgroup, brings its limits up to date unless that
	// took memory away that is in use, and returns what ParentOf does. It is for
	// a pod of which nothing runs; one that runs is resized.
	Ensure(ctx context.Context, pod *v1.Pod) (parent string, err error)
	// Raise makes the pod's cgroup no smaller than Ensure would in anything, and
	// takes nothing away, so that containers can grow within it.
	Raise(ctx context.Context, pod *v1.Pod) error
	// Fit makes the pod's cgroup what Ensure would; it is an error that this
	// would take memory away that is in use.
	Fit(ctx context.Context, pod *v1.Pod) error
	// Remove kills what is left in the pod's cgroup and removes it, whatever
	// tier it is in. Idempotent.
	Remove(ctx context.Context, uid types.UID) error
	// List names the pods that have a cgroup.
	List() ([]types.UID, error)
}

// Off is the Manager that makes no cgroups (cgroupsPerQOS false, simulation).
// Parent is what ParentOf and Ensure return, usually empty.
type Off struct{ Parent string }

// Setup does nothing.
func (Off) Setup(context.Context, Limits) error { return nil }

// ParentOf returns Parent.
func (o Off) ParentOf(context.Context, *v1.Pod) (string, error) { return o.Parent, nil }

// Ensure returns Parent.
func (o Off) Ensure(context.Context, *v1.Pod) (string, error) { return o.Parent, nil }

// Raise does nothing.
func (Off) Raise(context.Context, *v1.Pod) error { return nil }

// Fit does nothing.
func (Off) Fit(context.Context, *v1.Pod) error { return nil }

// Remove does nothing.
func (Off) Remove(context.Context, types.UID) error { return nil }

// List is empty.
func (Off) List() ([]types.UID, error) { return nil, nil }
