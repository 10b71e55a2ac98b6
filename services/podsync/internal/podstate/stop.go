package podstate

import (
	v1 "k8s.io/api/core/v1"
)

// Stop is a reason of the node's own to end a pod.
type Stop struct {
	// Reason is status.reason, e.g. Evicted.
	Reason string
	// Message is status.message.
	Message string
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

// Hastened is the stop after another was asked for: the first one's reason stands, and
// the shorter grace period counts.
func (s Stop) Hastened(later Stop) Stop {
	if later.GraceSeconds != nil && (s.GraceSeconds == nil || *later.GraceSeconds < *s.GraceSeconds) {
		s.GraceSeconds = later.GraceSeconds
	}
	return s
}
