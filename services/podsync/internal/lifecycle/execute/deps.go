package execute

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/hook"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/allocation"
	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image"
	"github.com/polylet/polylet/services/podsync/internal/runtime/limiter"
)

// Runtime changes what the runtime has; *cri.Client has it.
type Runtime interface {
	RunSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error)
	StopSandbox(ctx context.Context, id string) error
	RemoveSandbox(ctx context.Context, id string) error
	SandboxProcess(ctx context.Context, id string) (pid int, ready bool, err error)
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	UpdateContainer(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error
	UpdateSandbox(ctx context.Context, id string, overhead, containers *runtimeapi.LinuxContainerResources) error
	ContainerMemory(ctx context.Context, id string) (uint64, error)
}

// Allocations keeps what resizes were allocated; *allocation.Store has it.
type Allocations interface {
	Put(ctx context.Context, uid types.UID, e allocation.Entry) error
	InEffect(uid types.UID, generation int64)
}

// Ends keeps that the node ends a pod for a reason of its own; *stopping.Keeper
// has it.
type Ends interface {
	Put(ctx context.Context, uid types.UID, stop podstate.Stop) error
	// PutLast keeps the status that a pod has ended with.
	PutLast(ctx context.Context, uid types.UID, status *v1.PodStatus) error
}

// Observer is told of what was done, so that it is known before the action
// counts as done; *observe.Observer has it.
type Observer interface {
	Current(uid types.UID) podstate.Observed
	Refresh(ctx context.Context, uid types.UID) error
	// RefreshUntilSeen tries until it has seen the pod or ctx is done.
	RefreshUntilSeen(ctx context.Context, uid types.UID)
	SawContainer(ctx context.Context, id, sandboxID string) error
	SawSandbox(ctx context.Context, id string) error
	Gone(id string)
}

// Images makes images present; *image.Puller has it.
type Images interface {
	Ensure(ctx context.Context, r image.Request) (string, error)
}

// Volumes makes and ends a pod's volumes; volume.Shown has it.
type Volumes interface {
	// Setup's error is podstate.VolumeErrors when it is of single volumes.
	Setup(ctx context.Context, pod *v1.Pod, volumes ...string) error
	// Teardown's namespace is empty of a pod that no source knows.
	Teardown(ctx context.Context, uid types.UID, namespace string) error
	RemovePodDir(uid types.UID) error
}

// Cgroups resizes and removes a pod's cgroup; cgroup.Manager has it.
type Cgroups interface {
	Raise(ctx context.Context, pod *v1.Pod) error
	Fit(ctx context.Context, pod *v1.Pod) error
	Remove(ctx context.Context, uid types.UID) error
}

// Builder makes the configurations of sandboxes and containers; *criconfig.Builder has it.
type Builder interface {
	// Pull is what of the sandbox's configuration images are pulled by; it makes nothing.
	Pull(ctx context.Context, pod *v1.Pod) (*runtimeapi.PodSandboxConfig, error)
	Sandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, string, error)
	Container(ctx context.Context, r criconfig.Request) (*runtimeapi.ContainerConfig, error)
	SandboxResources(pod *v1.Pod) (overhead, containers *runtimeapi.LinuxContainerResources)
	// Resized is what a running container is changed to.
	Resized(pod *v1.Pod, container string, k resources.Kernel) *runtimeapi.LinuxContainerResources
}

// Hooks runs lifecycle handlers; *hook.Runner has it.
type Hooks interface {
	Run(ctx context.Context, t hook.Target, h *v1.LifecycleHandler) error
}

// Finisher ends a pod's object; *status.Writer has it.
type Finisher interface {
	Finish(ctx context.Context, pod *v1.Pod) error
}

// Slots bounds what runs at once; *limiter.Limiter has it.
type Slots interface {
	Acquire(ctx context.Context, order limiter.Order) (release func(), err error)
}

// shownSlots lets a pod's timeline show that it waits for a place.
type shownSlots struct{ Slots }

// Acquire implements Slots.
func (s shownSlots) Acquire(ctx context.Context, order limiter.Order) (release func(), err error) {
	ended := timeline.Start(ctx, timeline.Place, "", "")
	release, err = s.Slots.Acquire(ctx, order)
	ended(err)
	return release, err
}

// Events records events on pods and containers; *event.Recorder has it.
type Events interface {
	Pod(pod *v1.Pod, eventType, reason, message string)
	Container(pod *v1.Pod, container, eventType, reason, message string)
}

// Config of an Executor.
type Config struct {
	// PodLogsDir, e.g. /var/log/pods; ContainerLogsDir, e.g. /var/log/containers.
	PodLogsDir, ContainerLogsDir string
	// SetupTimeout bounds the set-up of a pod's volumes; 2m3s when zero.
	SetupTimeout time.Duration
}

// Deps are what an Executor is given; all but EnsureCgroup, Ends, Returns, PluginHas,
// ProcessAlive and Metrics must be set.
type Deps struct {
	Runtime  Runtime
	Observer Observer
	Images   Images
	Volumes  Volumes
	Cgroups  Cgroups
	// EnsureCgroup makes the cgroup of a pod whose sandbox is about to be made,
	// with its limits; nil when nobody makes any.
	EnsureCgroup func(ctx context.Context, pod *v1.Pod) (parent string, err error)
	Builder      Builder
	Hooks        Hooks
	Finisher     Finisher
	Allocations  Allocations
	// Ends may be nil: a crash then loses that the node ends a pod.
	Ends   Ends
	Starts Slots
	Stops  Slots
	Events Events
	// Returns says whether a pod that is being removed is wanted again: the last
	// log of each container stays then, and with it the count of its restarts.
	// Nil when none ever is.
	Returns func(uid types.UID) bool
	// PluginHas says whether an extended resource of the node is a device plugin's, of
	// which there are none here yet.
	PluginHas func(name v1.ResourceName) (bool, error)
	// HostIPs are the node's addresses, primary first.
	HostIPs func() []string
	// ProcessAlive says whether a process of the host runs; /proc does when nil.
	ProcessAlive func(pid int) bool
	// Metrics may be nil.
	Metrics prometheus.Registerer
}
