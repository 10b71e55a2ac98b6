// Package criconfig builds what a pod is made of in the runtime's terms: the
// CRI configuration of its sandbox and of its containers.
//
// It owns the mapping from a pod's spec to CRI, with the files that belong to
// it (pod directory, log directory, hosts file, termination log). It must never
// call the runtime to change anything and never decide when something starts.
package criconfig

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
	"github.com/polylet/polylet/services/podsync/internal/resources/userns"
)

// Objects are the API objects that a pod's configuration is made from.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
	Services(ctx context.Context, namespace string) ([]*v1.Service, error)
}

// Volumes are the pod's volumes on the host.
type Volumes interface {
	HostPath(uid types.UID, volumeName string) (string, bool)
	// Device is HostPath of a volume that is a device, of which HostPath knows nothing.
	Device(uid types.UID, volumeName string) (string, bool)
	SubPath(ctx context.Context, pod *v1.Pod, container string, index int, volumeName, path string) (string, error)
	// KeepsLabels says whether the files of a claim's volume keep the SELinux labels that they
	// have, or all are shown with that of the pod.
	KeepsLabels(uid types.UID, volumeName string) bool
	// Groups are those that may use the pod's volumes, beside those that its spec names.
	Groups(uid types.UID) []int64
}

// Images tells of images in the runtime.
type Images interface {
	// Image returns nil without an error when the image is not present.
	Image(ctx context.Context, ref string) (*runtimeapi.Image, error)
}

// UserNamespaces gives pods ranges of ids; *userns.Allocator has it.
type UserNamespaces interface {
	Mapping(uid types.UID) (userns.Mapping, error)
}

// Config of a Builder.
type Config struct {
	// RootDir, e.g. /var/lib/kubelet; PodLogsDir, e.g. /var/log/pods.
	RootDir, PodLogsDir string
	NodeName            string
	ClusterDomain       string
	// ClusterDNS are the cluster's name servers, valid addresses only.
	ClusterDNS []string
	// ResolvConf is the host's resolv.conf; empty means none.
	ResolvConf string
	// HostsFile is the host's own hosts file; empty means /etc/hosts.
	HostsFile string
	// SeccompDefault is RuntimeDefault for pods that say nothing.
	SeccompDefault bool
	CPUCFSQuota    bool
	// CPUCFSQuotaPeriod zero means 100 ms.
	CPUCFSQuotaPeriod time.Duration
	// SingleProcessOOMKill nil means the default: true on v1, false on v2.
	SingleProcessOOMKill *bool
	// LimitedSwap lets burstable containers swap in proportion to their memory
	// request, on cgroup v2 only; nothing swaps without it.
	LimitedSwap bool
	// MemoryQoS protects and slows down memory, on cgroup v2 only; ReservedMemoryBytes are
	// kept from pods.
	MemoryQoS           resources.MemoryQoS
	ReservedMemoryBytes int64
	// Standalone: there is no apiserver, so there are no services.
	Standalone bool
	// What of a pod's spec is not looked at, for its gate is off: variables of
	// files (EnvFiles), HostnameOverride, and stop signals (ContainerStopSignals).
	NoEnvFiles, NoHostnameOverride, NoStopSignals bool
}

// Deps are what a Builder needs; all but UserNamespaces,
// Handlers and Recorder must be set.
type Deps struct {
	Objects Objects
	Volumes Volumes
	Images  Images
	Cgroups cgroup.Manager
	// UserNamespaces may be nil: then no pod can have one.
	UserNamespaces UserNamespaces
	// HostIPs are the node's addresses, primary first.
	HostIPs func() []string
	// Allocatable and Capacity of the node; empty lists when not known.
	Allocatable, Capacity func() v1.ResourceList
	// Handlers are the runtime's handlers with their features, by name; nil
	// when the runtime does not say.
	Handlers func() map[string]*runtimeapi.RuntimeHandlerFeatures
	// Recorder gets warnings about pods (DNSConfigForming, MissingClusterDNS) and,
	// with any Node as the object, about this node; may be nil.
	Recorder record.EventRecorder
	// Written is told of each hosts file of a pod and each termination log that
	// was made, for containers may write to it from then on; may be nil.
	Written func(file string)
}

// reasonConfig is the waiting reason of a container that cannot be configured.
const reasonConfig = "CreateContainerConfigError"

// ErrCgroup says that a pod's cgroup cannot be made, in the kubelet's words.
var ErrCgroup = errors.New("unable to ensure pod container exists")

// Builder builds configurations; safe for concurrent use.
type Builder struct {
	cfg     Config
	deps    Deps
	machine machine
	users   imageUsers
	// hostDNS is what was last said of the host's resolver configuration.
	hostDNS atomic.Pointer[string]
}

// New makes a Builder; it touches no file.
func New(cfg Config, deps Deps) *Builder {
	if cfg.HostsFile == "" {
		cfg.HostsFile = "/etc/hosts"
	}
	return &Builder{cfg: cfg, deps: deps}
}

// Request says which container to build.
type Request struct {
	Pod *v1.Pod
	// Container is the name of an init, regular or ephemeral container.
	Container    string
	RestartCount int
	// ImageRef is what the pull found.
	ImageRef string
	// VolumeRefs is the same for the image volumes that the container mounts, by
	// volume.
	VolumeRefs map[string]string
	// PodIPs of the sandbox, primary first; empty on the host's network.
	PodIPs []string
	// Backoff is kept in an annotation when not zero.
	Backoff time.Duration
	// Round is kept in an annotation when not zero; see podstate.Container.
	Round int
	// TargetID is the container whose process namespace an ephemeral container
	// with targetContainerName joins; empty for none.
	TargetID string
}
