package podsync

import "time"

// CgroupsConfig says what pods may use.
type CgroupsConfig struct {
	// PerQOS makes a cgroup for each pod; without it the runtime's own
	// parent is used.
	PerQOS bool
	// Root is the cgroup below which kubepods lies.
	Root string
	// Driver is "cgroupfs" or "systemd", for a runtime that does not say.
	Driver string
	// CPUCFSQuota sets cpu quotas from limits.
	CPUCFSQuota       bool
	CPUCFSQuotaPeriod time.Duration
	// PodPidsLimit bounds the processes of each pod; none when not positive.
	PodPidsLimit int64
	// EnforcePods limits all pods together to what is allocatable.
	EnforcePods bool
	// Enforced are the cgroups of others that are limited to what is reserved
	// for them (enforceNodeAllocatable has system-reserved or kube-reserved).
	Enforced []Reservation
	// ReservedMilliCPU, ReservedMemoryBytes and ReservedPIDs are kept from pods
	// (kubeReserved and systemReserved together).
	ReservedMilliCPU    int64
	ReservedMemoryBytes int64
	ReservedPIDs        int64
	// QOSReserved is how many percent of the memory that pods have asked for those of
	// worse classes may not use; nil bounds no class.
	QOSReserved *int64
	// System is the cgroup that the machine's processes are moved into that are in none;
	// empty moves nothing.
	System string
	// MemoryQoS is what is protected and slowed down of memory, on cgroup v2.
	MemoryQoS MemoryQoSConfig
}

// MemoryQoSConfig says how the kernel treats the memory of pods.
type MemoryQoSConfig struct {
	// On is the gate MemoryQoS.
	On bool
	// Tiered protects what pods have asked for (memoryReservationPolicy).
	Tiered bool
	// Factor is memoryThrottlingFactor: from which part of what is between a container's
	// request and its limit on it is slowed down.
	Factor float64
}

// Reservation is what a cgroup outside of the pods' may use.
type Reservation struct {
	// Kind is what the configuration calls it: system-reserved, kube-reserved,
	// or either with -compressible.
	Kind string
	// Cgroup is its path from the root of the hierarchies; it must exist.
	Cgroup string
	// MilliCPU, MemoryBytes and PIDs; zero limits nothing.
	MilliCPU, MemoryBytes, PIDs int64
}
