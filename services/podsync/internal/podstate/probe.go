package podstate

import (
	"time"
)

// Target is a probe to run.
type Target struct {
	ProbeKey
	ContainerID string
	StartedAt   time.Time
	// Started in the startup probe's sense.
	Started bool
	PodIP   string
}

// ProbeType is which probe.
type ProbeType int

// The probe types.
const (
	Liveness ProbeType = iota + 1
	Readiness
	Startup
)

// ProbeKey names one probe of the pod.
type ProbeKey struct {
	Container string
	Type      ProbeType
}

// ProbeResult is what stands.
type ProbeResult struct {
	// ContainerID the result was found for; it says nothing about another.
	ContainerID string
	Success     bool
	Message     string
}

// String names the probe as its field in the spec begins.
func (t ProbeType) String() string {
	switch t {
	case Liveness:
		return "liveness"
	case Readiness:
		return "readiness"
	case Startup:
		return "startup"
	default:
		return "unknown"
	}
}
