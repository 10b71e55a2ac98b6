// Package podstate is what the packages of this process say to each other about
// one pod: what the runtime has of it, what is to be done for it, what it waits
// for, how its admission, its probes and its hooks stand. The planner decides in
// these words, and the others carry out, look and report in them.
//
// It owns the types, what can be said of one by itself, and the rules that go with an
// action (found.go). It must never decide what is done about a pod: that is the planner's.
package podstate

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/resources"
)

// CutShort says whether the container was made and its start was cut short: it
// is made anew, but if its pod has ended, the runtime's end is all that it has.
func (c *Container) CutShort() bool {
	return c.Created() && c.Reason != ""
}

// Live says whether the container may have a running process; none has none.
func (c *Container) Live() bool {
	return c != nil && (c.State == StateRunning || c.State == StateUnknown)
}

// Created says whether the container was made and never started; none was not.
func (c *Container) Created() bool { return c != nil && c.State == StateCreated }

// Ended says whether the container has ended; none has not.
func (c *Container) Ended() bool { return c != nil && c.State == StateExited }

// Ran says whether the container has come to run, however it stands now; none has not.
func (c *Container) Ran() bool {
	return c != nil && (c.State == StateRunning || c.State == StateExited && !c.StartedAt.IsZero())
}

// Container is the one with a CRI id; nil when there is none.
func (o *Observed) Container(id string) *Container {
	for i := range o.Containers {
		if o.Containers[i].ID == id {
			return &o.Containers[i]
		}
	}
	return nil
}

// ByID is Container for all of them.
func (o *Observed) ByID() podutil.Index[string, Container] {
	return podutil.NewIndex(o.Containers, func(c *Container) string { return c.ID })
}

// Sandbox is the one with a CRI id; nil when there is none.
func (o *Observed) Sandbox(id string) *Sandbox {
	for i := range o.Sandboxes {
		if o.Sandboxes[i].ID == id {
			return &o.Sandboxes[i]
		}
	}
	return nil
}

// ImageChanged says whether the container was made from another definition.
func (c *Container) ImageChanged(spec *v1.Container) bool {
	return c.SpecHash != "" && c.SpecHash != podutil.Hash(spec)
}

// Observed is what the runtime has of one pod.
type Observed struct {
	// Known is false until the runtime has been looked at once for this pod
	// in this run of the process; nothing is decided before.
	Known bool
	// StaticOf is namespace/name of a static pod, as its sandbox says, also
	// before it was looked at; empty for any other pod.
	StaticOf string
	// Sandboxes, newest first.
	Sandboxes []Sandbox
	// Containers, newest first by attempt, then creation.
	Containers []Container
}

// Sandbox is one pod sandbox.
type Sandbox struct {
	ID          string
	Attempt     uint32
	Ready       bool
	CreatedAt   time.Time
	IPs         []string
	HostNetwork bool
	// PodStarted is the pod's start time, kept in an annotation of the sandbox;
	// zero when it has none.
	PodStarted time.Time
	// Allocated is what the pod had when the sandbox was made, as an annotation
	// of it says (resize.Decode); empty when another agent made it.
	Allocated string
}

// Up says whether all is known of a sandbox that containers need; of none it is not.
func (s *Sandbox) Up() bool {
	return s != nil && s.Ready && (s.HostNetwork || len(s.IPs) > 0)
}

// ContainerState is the runtime's.
type ContainerState int

// The states.
const (
	StateUnknown ContainerState = iota
	StateCreated
	StateRunning
	StateExited
)

// Container is one container of the runtime.
type Container struct {
	ID        string
	SandboxID string
	Name      string
	// RestartCount is kept in an annotation of the container.
	RestartCount int
	State        ContainerState
	CreatedAt    time.Time
	StartedAt    time.Time
	// FinishedAt, ExitCode, Reason and Message are of the end of one in
	// StateExited. In StateCreated they are set when its start was cut short, and
	// say how the runtime shows that; zero otherwise.
	FinishedAt time.Time
	ExitCode   int32
	Reason     string
	Message    string
	// Image is what the status shows, ImageID the digest reference.
	Image   string
	ImageID string
	// SpecHash is Hash of the container as it was created, in hex; empty when
	// another agent's container does not carry it.
	SpecHash string
	// Backoff is how long the restart after this container's exit waits; kept
	// in an annotation, so it outlives every crash.
	Backoff time.Duration
	// BackoffKey is BackoffKey of the container as it was created; empty when
	// another agent made it.
	BackoffKey string
	// Round counts the restarts of all containers that came before it.
	Round int
	// GraceSeconds is the grace period that the pod had when the container was
	// made; it counts only when no source knows the pod. Zero when not known.
	GraceSeconds int64
	// PreStop is the hook that the container was made with; it counts only when
	// no source knows the pod. Nil when there is none.
	PreStop *v1.LifecycleHandler
	// Hook says how postStart stands.
	Hook Hook
	// User is shown in the status when the runtime reports it.
	User *v1.ContainerUser
	// RecursiveReadOnly are the paths in the container where the runtime made the
	// mounts below a read-only one read-only too.
	RecursiveReadOnly []string
	// Kernel is what the runtime says that it applied; nil when it does not say.
	Kernel *resources.Kernel
	// Made are the resources that the container was made with, as an annotation
	// of it says; nil when another agent made it.
	Made *v1.ResourceRequirements
}

// Hook is how a postStart hook stands.
type Hook int

// The states of a hook.
const (
	// HookDone: there is none, or it ended well, or podsync restarted since.
	HookDone Hook = iota
	// HookRunning: the container counts as not yet started.
	HookRunning
	// HookFailed: the container is to be killed.
	HookFailed
)
