package podstate

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Stop is a reason of the node's own to end a pod.
type Stop struct {
	// Reason is status.reason, e.g. Evicted.
	Reason string
	// Message is status.message.
	Message string
	// Signal is the eviction signal it was chosen by; empty for none.
	Signal string
	// ByContainers: the pod has succeeded if its containers all end with 0, and
	// then shows neither reason nor message. Otherwise it has failed in any case.
	ByContainers bool
	// GraceSeconds overrides the pod's grace period; nil keeps it.
	GraceSeconds *int64
	// Condition is added to the pod's conditions, usually DisruptionTarget; nil for none.
	Condition *v1.PodCondition
	// Shutdown: the machine goes down, and the pod with it whatever it is.
	Shutdown bool
}

// Ending is a pod that the node ends for a reason of its own.
type Ending struct {
	UID types.UID
	// Namespace and Name are the pod's; empty where no source has it any more.
	Namespace, Name string
	Stop            Stop
	// Since is when it was told to stop, in this run.
	Since time.Time
	// Ended: none of its processes is left.
	Ended bool
}

// Hastened is the stop after another was asked for: the first one's reason stands, and
// the shorter grace period counts.
func (s Stop) Hastened(later Stop) Stop {
	if later.GraceSeconds != nil && (s.GraceSeconds == nil || *later.GraceSeconds < *s.GraceSeconds) {
		s.GraceSeconds = later.GraceSeconds
	}
	return s
}
