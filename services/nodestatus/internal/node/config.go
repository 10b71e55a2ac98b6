// Package node computes the Node object: from the configuration, from facts
// that others gathered, and from the Node as it is. It is pure: no I/O, no
// clock, and the object that it is given is never changed.
// Source: https://kubernetes.io/docs/reference/node/node-status/
package node

import (
	"runtime"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// Config is what the node is configured to be.
type Config struct {
	// Name is the Node's name and the value of its hostname label.
	Name string
	// Labels are --node-labels; they go before the default ones.
	Labels map[string]string
	// Taints are given at creation only.
	Taints []v1.Taint
	// ProviderID is given at creation only.
	ProviderID string
	// ExternalCloud is --cloud-provider=external; NodeIP is --node-ip.
	ExternalCloud bool
	NodeIP        string
	// NoController: the Node does not say that a controller attaches its volumes
	// (enableControllerAttachDetach is false).
	NoController bool
	// Port is that of the node's HTTPS API.
	Port int32
	// MaxPods is how many pods may run; PodsPerCore bounds it further when not 0.
	MaxPods, PodsPerCore int32
	// NoLocalStorage leaves out how large the root directory's filesystem is.
	NoLocalStorage bool
	// MaxImages is how many images are listed; -1 is all.
	MaxImages int32
	// KubeReserved and SystemReserved are kept from pods.
	KubeReserved, SystemReserved v1.ResourceList
	// Thresholds are the eviction thresholds; the hard ones are kept from pods.
	Thresholds []threshold.Threshold
	// KubeletVersion is a Kubernetes version; the control plane reads it.
	KubeletVersion string
	// DeclaredFeatures are what the node says that it can do, sorted.
	DeclaredFeatures []string
}

// Facts are what was found out. What is nil or empty is not known (yet), and
// leaves what the Node says.
type Facts struct {
	// Machine describes the machine.
	Machine *Machine
	// Host names the kernel and the operating system.
	Host Host
	// Runtime is what podsync said of the container runtime.
	Runtime Runtime
	// Images are those that the runtime has; nil is not known.
	Images []Image
	// Addresses are the node's.
	Addresses []v1.NodeAddress
	// CSINode is why the CSINode is not as it should be at the Node's beginning; empty
	// when it is, or was, and without an apiserver.
	CSINode string
	// VolumesInUse must stay attached to the node, sorted; nil is not known.
	VolumesInUse []string
	// Pressure says which pressures there are; nil is not known.
	Pressure map[pressure.Kind]bool
	// ShuttingDown is whether the machine goes down.
	ShuttingDown bool
	// ShutdownUnheard: that is not known yet, and what a run before this one has said stays.
	ShutdownUnheard bool
	// Devices is what a kubelet has left of its device plugins; nil is not known.
	Devices *Devices
}

// Devices is what a kubelet has left of its device plugins, which nobody serves now.
type Devices struct {
	// Checkpoint is whether the kubelet has left a list of them.
	Checkpoint bool
	// Resources are those that plugins have registered, sorted.
	Resources []v1.ResourceName
}

// Machine describes the machine.
type Machine struct {
	Cores                  int
	MemoryBytes, SwapBytes uint64
	RootFilesystemBytes    uint64
	HugePages              []HugePages
	// MaxPIDs is how many processes the kernel allows; 0 when that is not known.
	MaxPIDs                       int64
	MachineID, SystemUUID, BootID string
}

// HugePages of one size.
type HugePages struct{ SizeBytes, Count uint64 }

// Host names the kernel and the operating system.
type Host struct{ KernelVersion, OSImage string }

// Runtime is what is known of the container runtime.
type Runtime struct {
	// Unanswered is for how long podsync has been asked and has not said anything
	// about the runtime, in time in which this process ran; zero while it answers.
	// Err is why it does not answer now; empty when it does.
	Unanswered time.Duration
	Err        string
	// Silence is for how long the runtime has not answered podsync, up to podsync's
	// last answer: while podsync is away nobody knows about the runtime.
	Silence time.Duration
	// Unlisted is for how long the list of the runtime's containers is overdue.
	Unlisted time.Duration
	// Name and Version are the runtime's.
	Name, Version string
	// Ready and NetworkReady are CRI's conditions, with why not.
	Ready, NetworkReady     bool
	Message, NetworkMessage string
	// Handlers are the runtime's, Known says that the fields above and these
	// were ever filled in.
	Known                    bool
	Handlers                 []Handler
	SupplementalGroupsPolicy bool
}

// Handler is a runtime handler.
type Handler struct {
	Name                                    string
	RecursiveReadOnlyMounts, UserNamespaces bool
}

// Image is an image of the runtime.
type Image struct {
	ID            string
	Digests, Tags []string
	SizeBytes     uint64
}

const (
	// controllerManaged tells the control plane that it attaches volumes.
	controllerManaged = "volumes.kubernetes.io/controller-managed-attach-detach"
	// providedNodeIP tells the cloud controller which address was asked for.
	providedNodeIP = "alpha.kubernetes.io/provided-node-ip"
	// uninitialized is the taint that the cloud controller takes away.
	uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
)

// DefaultLabels are those that every Node has.
func (c Config) DefaultLabels() map[string]string {
	return map[string]string{
		v1.LabelHostname: c.Name, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
}

func binary(bytes uint64) resource.Quantity {
	return *resource.NewQuantity(int64(bytes), resource.BinarySI) //nolint:gosec // No machine has 8 EiB.
}
