package podstate

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// ReasonPanicked is that of an action which failed by a fault of podsync's own.
const ReasonPanicked = "InternalError"

// Kind is what an action does.
type Kind string

// The kinds, in the order of a pod's life.
const (
	// PullImage makes an image present: a container's (Container), or that of an
	// image volume (Volume), by its name (Image).
	PullImage Kind = "pull image"
	// SetupVolumes sets volumes up, side by side (Volumes, Version).
	SetupVolumes Kind = "set up volumes"
	// MakeSandbox creates and starts a sandbox with its cgroup, DNS and network (Attempt, PodStarted).
	MakeSandbox Kind = "make sandbox"
	// StartContainer creates and starts a container and runs its postStart hook
	// (Container, Attempt, ImageRef, VolumeRefs, SandboxID, CheckSandbox, SandboxUntil,
	// Backoff, Round).
	StartContainer Kind = "start container"
	// BeginStop announces that a container is about to be stopped and runs its
	// preStop hook, if it has one (Container, ID, GraceTotalSeconds, Reason, Cause). It
	// has no bound of its own: it is cancelled when the container has ended.
	BeginStop Kind = "begin stop"
	// KillContainer stops a container (Container, ID, GraceSeconds, Until, Reason,
	// Cause, Announced).
	KillContainer Kind = "kill container"
	// StopSandbox stops a sandbox and frees its network (ID).
	StopSandbox Kind = "stop sandbox"
	// KeepStop keeps that the node ends the pod, so that it outlives a crash (Stop).
	KeepStop Kind = "keep the end"
	// KeepStatus keeps the status that the pod has ended with, so that it outlives a crash
	// though the apiserver does not know it and the runtime forgets (Status).
	KeepStatus Kind = "keep the last status"
	// KeepAllocation keeps what a resize was allocated, so that it outlives a
	// crash (Allocation, Generation).
	KeepAllocation Kind = "keep allocation"
	// RaiseCgroup makes the pod's cgroup no smaller than what is allocated (ID
	// of the sandbox, empty for none), with which a resize begins: none of its
	// Limits may be below what is in use.
	RaiseCgroup Kind = "raise cgroup"
	// ResizeContainer changes a running container's resources (Container, ID, Kernel, Shrinks).
	ResizeContainer Kind = "resize container"
	// FitCgroup makes the pod's cgroup what is allocated, once no container needs more.
	FitCgroup Kind = "fit cgroup"
	// RemoveContainer removes a dead container (ID).
	RemoveContainer Kind = "remove container"
	// RemoveSandbox removes a stopped sandbox (ID).
	RemoveSandbox Kind = "remove sandbox"
	// TeardownVolumes unmounts and removes all volumes.
	TeardownVolumes Kind = "tear down volumes"
	// RemoveCgroup removes the pod's cgroup.
	RemoveCgroup Kind = "remove cgroup"
	// RemoveDirectories removes the pod's directory and its logs.
	RemoveDirectories Kind = "remove directories"
	// DeleteObject tells the apiserver that the pod has ended, once its final
	// status was accepted.
	DeleteObject Kind = "delete object"
)

// Key identifies an action of one pod: at most one of a key runs at a time.
type Key struct {
	Kind Kind
	// Object is a container name (PullImage, StartContainer), a VolumeKey
	// (PullImage), a CRI id (BeginStop, KillContainer, ResizeContainer,
	// StopSandbox, Remove…), else empty.
	Object string
}

// Action is one thing to do. Fields beyond Key are set as its Kind says.
type Action struct {
	Key
	// Container is the container's name in the spec.
	Container string
	// Volume is the name of an image volume in the spec.
	Volume string
	// Image is what the spec names, of a PullImage.
	Image string
	// Early: the image is of a container that is not due yet.
	Early bool
	// ID is a CRI id.
	ID string
	// SandboxID is the sandbox to start the container in.
	SandboxID string
	// CheckSandbox: whether that is down is asked before the container is made. It may
	// be why the one before it has ended.
	CheckSandbox bool
	// SandboxUntil is set when the container was killed from outside: until then
	// its sandbox may be on its way out, which the sandbox's own process tells
	// before the runtime does. It is asked once more before the container runs; see
	// CheckOf.
	SandboxUntil time.Time
	// Attempt of a sandbox, or restart count of a container.
	Attempt int
	// PodStarted is the pod's start time, for MakeSandbox to keep.
	PodStarted time.Time
	// Volumes are the names of the volumes to set up, and Version is that of the pod
	// which they are to show. The empty name is what all lie in.
	Volumes []string
	Version int
	// ImageRef is the reference that PullImage found.
	ImageRef string
	// Beside are containers of the same name that a StartContainer leaves alone: they
	// never started, and are Unremovable.
	Beside []string
	// VolumeRefs are the same for the image volumes that the container mounts,
	// by volume.
	VolumeRefs map[string]string
	// Backoff to keep in the new container's annotation.
	Backoff time.Duration
	// Round of the new container; see Container.Round.
	Round int
	// GraceSeconds is what is left of the grace period for the stop.
	GraceSeconds int64
	// GraceTotalSeconds is the whole grace period that GraceSeconds is the rest of.
	GraceTotalSeconds int64
	// Until is when a KillContainer's GraceSeconds are over.
	Until time.Time
	// Announced: the container's stop was told of already.
	Announced bool
	// Cause of a BeginStop or KillContainer.
	Cause Cause
	// Reason is the event's text for a kill, e.g. "Container x failed liveness
	// probe, will be restarted"; for others empty.
	Reason string
	// Status is what KeepStatus keeps.
	Status *v1.PodStatus
	// Stop is what KeepStop keeps.
	Stop *Stop
	// Allocation and Generation are what is to be kept.
	Allocation *resize.Allocation
	Generation int64
	// Kernel is what the container is to have.
	Kernel resources.Kernel
	// Shrinks: its memory limit gets smaller, which its usage must allow.
	Shrinks bool
	// Limits are those that a resize makes smaller.
	Limits []MemoryLimit
	// Replace: the running action of this key is to be cancelled first (a grace
	// period that shrank).
	Replace bool
}

// MemoryLimit is what a running container is to have at most, in bytes.
type MemoryLimit struct {
	Container, ID string
	Bytes         int64
}

// volumePrefix keeps the keys of image volumes apart from those of containers,
// whose names have no slash.
const volumePrefix = "volume/"

// VolumeKey is the key of an image volume in State.Images, and the Object of
// the action that pulls its image.
func VolumeKey(volume string) string { return volumePrefix + volume }
