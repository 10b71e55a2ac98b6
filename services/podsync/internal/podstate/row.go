package podstate

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// SandboxRow is one pod sandbox in the table of all that the runtime has, with its pod.
type SandboxRow struct {
	ID              string
	UID             types.UID
	Namespace, Name string
	Attempt         uint32
	Ready           bool
	CreatedAt       time.Time
	// CgroupParent is the pod's cgroup below the cgroup root; may be empty.
	CgroupParent string
	// NetworkNamespace is its path; empty for host network.
	NetworkNamespace string
}

// ContainerRow is one container in that table, with its pod.
type ContainerRow struct {
	ID, SandboxID string
	UID           types.UID
	// Namespace and PodName of the pod, Name of the container.
	Namespace, PodName, Name string
	Attempt                  uint32
	// Image as the spec names it.
	Image string
	State ContainerState
	// CreatedAt orders containers of one name; StartedAt is zero before the start.
	CreatedAt, StartedAt time.Time
	// LogPath is the log file on the host.
	LogPath string
}
