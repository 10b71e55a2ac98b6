package podstate

// ResizePending is why a resize is not allocated.
type ResizePending struct {
	// Reason is Deferred or Infeasible.
	Reason string
	// Cause is the reason that admission gave, e.g. OutOfcpu; empty when it is
	// Reason.
	Cause string
	// Message is for people.
	Message string
	// Generation is the pod's that asked for it.
	Generation int64
}
