// Package probestore owns the board between the pods' workers and the probes
// process: the probes that should run and the last result of each. It must
// never run a probe, and never judge what a result means for a pod.
package probestore

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// Key names one probe on the node.
type Key struct {
	// UID of the pod.
	UID types.UID
	podstate.ProbeKey
}

// Target is one probe to run, with everything resolved that the pod's spec says.
type Target struct {
	Key
	// Namespace and Name of the pod.
	Namespace, Name string
	// ContainerID is the CRI id; another id means that the probe begins anew.
	ContainerID string
	// StartedAt is when the container started.
	StartedAt time.Time
	// Started in the startup probe's sense.
	Started bool
	// PodIP is the default host of network probes.
	PodIP string
	// Probe is the spec's, with ports resolved to numbers (0 when the name is
	// unknown) and the environment expanded in exec commands.
	Probe *v1.Probe
	// PortName is the port's name in the spec; empty when it was a number.
	PortName string
}

// Result is what a probe found.
type Result struct {
	Key
	podstate.ProbeResult
	// Known is false when nothing is known yet.
	Known bool
	// At is when it changed to this.
	At time.Time
	// Count is what speaks against it so far.
	Count Count
}

// Count is how many attempts in a row speak against what stands, fewer than it
// takes. It says nothing of a pod; it is kept for the probes process, which asks
// for it when it has been started anew.
type Count struct{ Successes, Failures int32 }

// Event is one attempt that belongs into an event on the pod.
type Event struct {
	Key
	// Reason is Unhealthy or ProbeWarning.
	Reason string
	// Message is the kubelet's text.
	Message string
}

// Events records an event on a container.
type Events interface {
	// Container records one event.
	Container(pod *v1.Pod, container, eventType, reason, message string)
}

// Results are told of each result that is new or changed and meant for a target of
// the board; *worker.Registry has it.
type Results interface {
	// ProbeResult must not block.
	ProbeResult(uid types.UID, key podstate.ProbeKey, result podstate.ProbeResult)
}

// Deps is what a Board is given.
type Deps struct {
	// Epoch of this process.
	Epoch uint64
	// Events may be nil.
	Events Events
	// Results may be nil.
	Results Results
	// Memory is the file that keeps the results of static pods over a restart of this
	// process, and those for which a container is killed; the others of other pods the
	// apiserver's status does. Empty keeps none.
	Memory string
	// Health may be nil; "probe results" is reported.
	Health health.Reporter
}
