// Package probe holds the words of the probes process: what is probed, how, and
// what can come out. It owns plain data only; it must never import gRPC,
// generated code or anything that does I/O.
package probe

import (
	"fmt"
	"time"
)

// Type is which of the three probes of a container.
type Type int

// The types, as in a container's spec.
const (
	Liveness Type = iota + 1
	Readiness
	Startup
)

// String is the type as the kubelet's events and metrics spell it.
func (t Type) String() string {
	switch t {
	case Liveness:
		return "Liveness"
	case Readiness:
		return "Readiness"
	case Startup:
		return "Startup"
	default:
		return fmt.Sprintf("Type(%d)", int(t))
	}
}

// Outcome is what stands after thresholds were applied.
type Outcome int

// The outcomes. Unknown is the zero value: nothing was found yet.
const (
	Unknown Outcome = iota
	Success
	Failure
)

// String names the outcome for logs.
func (o Outcome) String() string {
	switch o {
	case Success:
		return "success"
	case Failure:
		return "failure"
	default:
		return "unknown"
	}
}

// Verdict is what one attempt says.
type Verdict int

// The verdicts of an attempt.
const (
	// Passed: the probe succeeded.
	Passed Verdict = iota + 1
	// Warned: it succeeded and there is something to tell.
	Warned
	// Failed: it ran and failed.
	Failed
	// Errored: it could not be run or read; it says nothing about the container.
	Errored
	// Skipped: the way to run it is away (podsync restarts, the container just
	// ended). It says nothing and is not worth an event.
	Skipped
)

// Answer is the result of one attempt.
type Answer struct {
	// Verdict is what it says.
	Verdict Verdict
	// Message is the handler's text: response body, output or error.
	Message string
}

// Key identifies one probe of one container of one pod.
type Key struct {
	// PodUID is the pod's UID.
	PodUID string
	// Container is the container's name.
	Container string
	// Type is which probe.
	Type Type
}

// Target is one probe to run against one running container.
type Target struct {
	Key Key
	// Namespace and Name are the pod's.
	Namespace, Name string
	// ContainerID is the CRI id; a new one means that the probe begins anew.
	ContainerID string
	// ContainerStart is when the container started; zero when not known.
	ContainerStart time.Time
	// Started is the container's started flag: the gate between the startup
	// probe and the other two.
	Started bool
	// PodIP is the default host of network probes.
	PodIP string
	// InitialDelay counts from ContainerStart.
	InitialDelay time.Duration
	// Timeout bounds one attempt.
	Timeout time.Duration
	// Period is the time between attempts that count.
	Period time.Duration
	// SuccessThreshold and FailureThreshold are consecutive equal attempts, at least 1.
	SuccessThreshold, FailureThreshold int
	// LastOutcome and LastCount are what podsync holds for this container id.
	LastOutcome Outcome
	LastCount   Count
	// Handler is Exec, HTTPGet, TCPSocket, GRPC or nil (nothing known to run).
	Handler Handler
}

// Handler is one of Exec, HTTPGet, TCPSocket, GRPC.
type Handler interface{ isHandler() }

// Exec runs a command in the container.
type Exec struct {
	// Command is program and arguments.
	Command []string
}

// HTTPGet does a GET.
type HTTPGet struct {
	// Scheme is http or https.
	Scheme string
	// Host is empty for the pod IP.
	Host string
	// Port is 0 when PortName was not found among the container's ports.
	Port int
	// PortName is for messages.
	PortName string
	// Path may hold a query.
	Path string
	// Headers are in order; names may repeat.
	Headers []Header
}

// Header is one HTTP header line.
type Header struct{ Name, Value string }

// TCPSocket connects.
type TCPSocket struct {
	// Host is empty for the pod IP.
	Host string
	// Port is 0 when PortName was not found among the container's ports.
	Port int
	// PortName is for messages.
	PortName string
}

// GRPC asks grpc.health.v1 at the pod IP.
type GRPC struct {
	Port int
	// Service may be empty.
	Service string
}

func (Exec) isHandler()      {}
func (HTTPGet) isHandler()   {}
func (TCPSocket) isHandler() {}
func (GRPC) isHandler()      {}

// Result is the outcome that stands for one container.
type Result struct {
	Key         Key
	ContainerID string
	Outcome     Outcome
	// Time is when it changed to Outcome.
	Time time.Time
	// Message is what the last attempt said, up to MessageLimit bytes.
	Message string
	// Count is what speaks against Outcome so far.
	Count Count
}

// Count is how many equal attempts in a row speak against the outcome that
// stands, fewer than the threshold. One of both is zero at least.
type Count struct{ Successes, Failures int }

// Event belongs into a Kubernetes Event on the pod.
type Event struct {
	Key             Key
	Namespace, Name string
	// Reason is ReasonUnhealthy or ReasonWarning.
	Reason string
	// Message is the kubelet's text.
	Message string
}

// Reasons of events.
const (
	ReasonUnhealthy = "Unhealthy"
	ReasonWarning   = "ProbeWarning"
)

// MessageLimit bounds messages of results and events in bytes; it is also the
// limit of an Event's message at the apiserver.
const MessageLimit = 1024
