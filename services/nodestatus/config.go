package nodestatus

import (
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
	"github.com/polylet/polylet/services/nodestatus/internal/shutdown"
)

// Config is what the Node is configured to be. Fields carry the names of the
// KubeletConfiguration's fields and flags that they come from.
type Config struct {
	// NodeName is the Node's name and the value of its hostname label.
	NodeName string
	// NodeLabels are given to a Node that is created.
	NodeLabels map[string]string
	// RegisterNode is whether the Node is created; RegisterWithTaints and
	// ProviderID are given to it then.
	RegisterNode       bool
	RegisterWithTaints []v1.Taint
	ProviderID         string
	// ExternalCloud is --cloud-provider=external; NodeIP is --node-ip.
	ExternalCloud bool
	NodeIP        string
	// NoController: the Node does not say that a controller attaches its volumes.
	NoController bool
	// Port is that of the node's HTTPS API.
	Port int32
	// MaxPods, PodsPerCore (0 is none) and NodeStatusMaxImages (-1 is all).
	MaxPods, PodsPerCore, NodeStatusMaxImages int32
	// NoLocalStorage is localStorageCapacityIsolation: false.
	NoLocalStorage bool
	// KubeReserved and SystemReserved are quantities by resource name.
	KubeReserved, SystemReserved map[string]string
	// EvictionHard, EvictionSoft and EvictionSoftGracePeriod are thresholds by signal.
	EvictionHard, EvictionSoft, EvictionSoftGracePeriod map[string]string
	// EvictionMinimumReclaim is what has to be left beyond a threshold, by signal,
	// before what was done about it is enough.
	EvictionMinimumReclaim map[string]string
	// EvictionMaxPodGracePeriod is how long a pod may take that goes because of a soft
	// threshold.
	EvictionMaxPodGracePeriod time.Duration
	// PodsEnforced is whether enforceNodeAllocatable has pods: the memory of all pods
	// together has the hard threshold of the node's then, too.
	PodsEnforced bool
	// EvictionPressureTransitionPeriod is how long a pressure stays after it was last seen.
	EvictionPressureTransitionPeriod time.Duration
	// NodeStatusUpdateFrequency is between two looks, NodeStatusReportFrequency
	// between two reports when nothing changed.
	NodeStatusUpdateFrequency, NodeStatusReportFrequency time.Duration
	// NodeLeaseDuration is how long the Lease is good for; whole seconds.
	NodeLeaseDuration time.Duration
	// StartEvents are sent once when the process starts.
	StartEvents []Event
	// DeclaredFeatures are what the Node says that it can do.
	DeclaredFeatures []string
	// DynamicConfiguration is whether the cluster is a source of the node's configuration.
	DynamicConfiguration bool
	// CertDir is where the node's certificates are.
	CertDir string
	// RotateCertificates has the client certificate renewed before it ends;
	// ServerTLSBootstrap has the serving certificate asked for and renewed, where
	// DNSOnlyCSR is set also for a node that has names and no IP address.
	RotateCertificates, ServerTLSBootstrap, DNSOnlyCSR bool
	// ShutdownGroups are how pods end when the machine goes down; none: they end with it.
	ShutdownGroups []ShutdownGroup
	// ShutdownSocket is where shutdowns are told of; ShutdownState is the file that says
	// when the last one was.
	ShutdownSocket, ShutdownState string
}

// ShutdownGroup is which pods end together when the machine goes down, by priority, and
// for how long others wait for them.
type ShutdownGroup = shutdown.Group

// ShutdownGroups are those of a configuration, lowest priority first: byPriority, else
// those of shutdownGracePeriod and shutdownGracePeriodCriticalPods. None: a shutdown is
// not delayed.
func ShutdownGroups(byPriority []ShutdownGroup, total, critical time.Duration) []ShutdownGroup {
	return shutdown.Groups(byPriority, total, critical)
}

// Event is one about the Node; Type is Normal or Warning.
type Event struct{ Type, Reason, Message string }

// node turns the configuration into the computation's.
func (c Config) node() (node.Config, error) {
	if c.NodeName == "" {
		return node.Config{}, errors.New("nodestatus: the node has no name; set --hostname-override or the host's name")
	}
	if c.NodeStatusUpdateFrequency <= 0 || c.NodeStatusReportFrequency <= 0 || c.NodeLeaseDuration < time.Second {
		return node.Config{}, fmt.Errorf("nodestatus: nodeStatusUpdateFrequency %s and nodeStatusReportFrequency %s have to be more than 0, nodeLeaseDurationSeconds (%s) at least 1",
			c.NodeStatusUpdateFrequency, c.NodeStatusReportFrequency, c.NodeLeaseDuration)
	}
	thresholds, err := threshold.Parse(threshold.Settings{
		Hard: c.EvictionHard, Soft: c.EvictionSoft, SoftGrace: c.EvictionSoftGracePeriod, MinimumReclaim: c.EvictionMinimumReclaim, PodsEnforced: c.PodsEnforced,
	})
	if err != nil {
		return node.Config{}, fmt.Errorf("nodestatus: %w", err)
	}
	kube, err := quantities("kubeReserved", c.KubeReserved)
	if err != nil {
		return node.Config{}, err
	}
	system, err := quantities("systemReserved", c.SystemReserved)
	if err != nil {
		return node.Config{}, err
	}
	return node.Config{
		Name: c.NodeName, Labels: c.NodeLabels, Taints: c.RegisterWithTaints, ProviderID: c.ProviderID,
		ExternalCloud: c.ExternalCloud, NodeIP: c.NodeIP, NoController: c.NoController, Port: c.Port,
		MaxPods: c.MaxPods, PodsPerCore: c.PodsPerCore, NoLocalStorage: c.NoLocalStorage, MaxImages: c.NodeStatusMaxImages, KubeReserved: kube, SystemReserved: system,
		Thresholds: thresholds, KubeletVersion: buildinfo.KubernetesVersion, DeclaredFeatures: c.DeclaredFeatures,
	}, nil
}

func quantities(field string, in map[string]string) (v1.ResourceList, error) {
	out := v1.ResourceList{}
	for name, text := range in {
		quantity, err := resource.ParseQuantity(strings.TrimSpace(text))
		if err != nil || quantity.Sign() < 0 {
			return nil, fmt.Errorf("nodestatus: %s: %s has %q; give it a quantity such as 100m or 1Gi", field, name, text)
		}
		out[v1.ResourceName(name)] = quantity
	}
	return out, nil
}
