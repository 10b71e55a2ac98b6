// Package server owns podsync's gRPC face: polylet.podsync.v1 and Kubernetes'
// Pods API. It translates between messages and the parts that do the work; it
// must never hold state of its own but which checkpoints are under way, and never
// decide about a pod.
package server

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/turn"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/podsync/internal/host/devices"
	"github.com/polylet/polylet/services/podsync/internal/report/explain"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/probestore"
	"github.com/polylet/polylet/services/podsync/internal/runtime/execreaper"
	"github.com/polylet/polylet/services/podsync/internal/runtime/logs"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// Runtime is what the server asks of the CRI runtime. Errors are gRPC
// statuses as the runtime sent them; a call whose context has no deadline
// should get one from the implementation, except ExecSync and
// CheckpointContainer, which have their own timeout in the request.
type Runtime interface {
	ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error)
	ContainerStatus(ctx context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error)
	Exec(ctx context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
	Attach(ctx context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
	PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error)
	CheckpointContainer(ctx context.Context, req *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error)
	ListContainerStats(ctx context.Context, req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error)
	ListImages(ctx context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error)
	ImageFsInfo(ctx context.Context, req *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error)
}

// RuntimeState is what the observer knows of the runtime.
type RuntimeState struct {
	// Version as the runtime told; nil before.
	Version *runtimeapi.VersionResponse
	// Status as the runtime told last; nil before.
	Status *runtimeapi.StatusResponse
	// Err is why the last Version or Status call failed; nil when it did not.
	Err error
	// LastOK is when Status last succeeded.
	LastOK time.Time
	// ContainerEvents says whether the runtime sends events.
	ContainerEvents bool
	// LastRelist is when the runtime's whole state was last seen.
	LastRelist time.Time
	// SourcesReady is when all sources had been seen; zero before.
	SourcesReady time.Time
	// Pressure is what the node was last said to be short of, and PressureSaid when;
	// zero: nobody has said anything.
	Pressure     []v1.NodeConditionType
	PressureSaid time.Time
	// Devices is what a kubelet has left of its device plugins.
	Devices devices.Known
}

// LogReader reads a container's log.
type LogReader interface {
	Read(ctx context.Context, req logs.Request, w io.Writer) error
}

// Mirrors translates the UID of a mirror pod into that of its static pod.
type Mirrors interface {
	StaticUID(mirror types.UID) (types.UID, bool)
}

// CSIDrivers can be followed; *csi.Volumes has it.
type CSIDrivers interface {
	Subscribe(ctx context.Context) *watch.Subscription[string, csi.State]
}

// VolumesInUse can be followed; *csi.Volumes has it.
type VolumesInUse interface {
	// InUse waits until all are known.
	InUse(ctx context.Context) (*watch.Subscription[v1.UniqueVolumeName, struct{}], error)
}

// Unsettled are the volumes that no pod has and that could not be taken from the node;
// *csi.Volumes has it.
type Unsettled interface {
	Unsettled() []csi.Unsettled
}

// Volumes says how pods' volumes stand, and how full those of drivers are; *volume.Set has it.
type Volumes interface {
	Usage(ctx context.Context, uid types.UID, name string) (volume.Usage, error)
	Standings(pod *v1.Pod, ended bool) []volume.Standing
}

// LogPath returns the log file of a container that has run.
type LogPath func(pod *v1.Pod, container string, restartCount int32) string

// Deps is what a Server is given.
type Deps struct {
	Pods    *podcache.Pods
	Table   *podcache.Table
	Probes  *probestore.Board
	Explain Explainer
	// Trouble says why the apiserver does not have a pod's status; nil when it
	// has. May be nil.
	Trouble func(uid types.UID) *explain.Trouble
	// Events may be nil.
	Events  Recent
	Runtime Runtime
	// Sessions ends commands whose client has left; nil: HoldExec is not served.
	Sessions *execreaper.Book
	// ContainerRuns asks the runtime, not the table, which is empty at first. It
	// is needed with Sessions.
	ContainerRuns func(ctx context.Context, id string) (bool, error)
	// State returns what is known of the runtime now.
	State func() RuntimeState
	Logs  LogReader
	// LogPath gives the path when the table has none for the container;
	// <logs root>/<ns>_<name>_<uid>/<container>/<restartCount>.log.
	LogPath LogPath
	// SandboxImage names the image of sandboxes as the runtime's configuration
	// does; nil and "" are not known.
	SandboxImage func(context.Context) (string, error)
	// Mirrors may be nil.
	Mirrors Mirrors
	// Stops, Pressure and Reclaim may be nil: StopPod, SetPressure and Reclaim are not
	// served then. Pressure is told what the node is short of, and for how long that counts.
	Stops    Stopper
	Pressure func(conditions []v1.NodeConditionType, counts time.Duration)
	Reclaim  Reclaimer
	// Shutdown is told whether the machine goes down; nil: SetShutdown is not served.
	Shutdown func(active bool)
	// CSIDrivers are those of this node; nil: WatchCSIDrivers is not served.
	CSIDrivers CSIDrivers
	// VolumesInUse are those of this node; nil: WatchVolumesInUse is not served.
	VolumesInUse VolumesInUse
	// Volumes may be nil: GetVolumeUsage and ListVolumes are not served.
	Volumes Volumes
	// Unsettled may be nil: ListVolumes has the volumes of pods only.
	Unsettled Unsettled
	// CheckpointDir takes the archives of checkpointed containers.
	CheckpointDir string
	// FreePercent is how much of a directory's disk is free; statfs(2) when nil.
	FreePercent func(dir string) (float64, error)
}

// Server answers the RPCs.
type Server struct {
	podsyncv1.UnimplementedPodSyncServiceServer
	deps        Deps
	checkpoints checkpoints
	leaving     leaving
	reclaims    turn.Turns
}

// New returns a Server. It fails when a dependency is missing.
func New(deps Deps) (*Server, error) {
	if deps.FreePercent == nil {
		deps.FreePercent = freePercent
	}
	if deps.Pods == nil || deps.Table == nil || deps.Probes == nil || deps.Runtime == nil || deps.Logs == nil || deps.State == nil {
		return nil, errors.New("make podsync's gRPC server: Pods, Table, Probes, Runtime, State and Logs must all be given")
	}
	return &Server{deps: deps}, nil
}

// Register puts PodSyncService and the Pods API on r.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	podsyncv1.RegisterPodSyncServiceServer(r, s)
	s.RegisterPods(r)
}

// RegisterPods puts only Kubernetes' Pods API on r, for its own socket
// <root>/pods-api/pods-api.sock.
func (s *Server) RegisterPods(r grpc.ServiceRegistrar) {
	podsapi.RegisterPodsServer(r, &podsServer{pods: s.deps.Pods})
}
