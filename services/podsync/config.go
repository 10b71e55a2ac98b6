package podsync

import (
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Config says how podsync runs. Zero fields take the defaults named.
type Config struct {
	// NodeName is this node's name.
	NodeName string
	// NodeIP is --node-ip; empty finds the address.
	NodeIP string
	// ExternalCloud is --cloud-provider=external.
	ExternalCloud bool
	// Standalone: there is no apiserver.
	Standalone bool

	// RootDir holds volumes and pod directories; /var/lib/kubelet.
	RootDir string
	// PodLogsDir holds the logs; /var/log/pods. Beside it lies the directory
	// "containers" with links to them.
	PodLogsDir string

	// StaticPodPath is a directory or file of static pods; empty for none.
	StaticPodPath string
	// FileCheckFrequency is how often it is listed beside inotify; 20 s.
	FileCheckFrequency time.Duration

	// StaticPodURL serves a Pod or a PodList of static pods; empty for none. It
	// is asked every HTTPCheckFrequency (20 s) with StaticPodURLHeader, whose
	// values are secrets.
	StaticPodURL       string
	StaticPodURLHeader map[string][]string
	HTTPCheckFrequency time.Duration

	// AllowAPIReferences lets static pods name objects of the apiserver: the gate
	// PreventStaticPodAPIReferences is off.
	AllowAPIReferences bool

	// RuntimeEndpoint is shown to people; the connection is in Deps.
	RuntimeEndpoint string
	// RuntimeRequestTimeout bounds calls that change something; 2 min.
	RuntimeRequestTimeout time.Duration
	// MaxParallelPulls is how many images are pulled at once; no bound when 0.
	MaxParallelPulls int
	// UserNamespaceIDs is how many ids a pod with a user namespace of its own
	// gets (userNamespaces.idsPerPod); 65536.
	UserNamespaceIDs uint32
	// PullQPS is how many pulls begin in a second, after PullBurst at once; no
	// bound when 0.
	PullQPS   float32
	PullBurst int
	// VerifyPulls remembers with which credentials images were pulled, and lets
	// pods use those that are present as VerifyPolicy and VerifyAllowlist say
	// (imagePullCredentialsVerificationPolicy, preloadedImagesVerificationAllowlist).
	VerifyPulls     bool
	VerifyPolicy    kubeletv1beta1.ImagePullCredentialsVerificationPolicy
	VerifyAllowlist []string
	// CredentialProviderConfig is a file or directory that names plugins for
	// registry credentials, and CredentialProviderBinDir holds them; empty for none.
	CredentialProviderConfig, CredentialProviderBinDir string
	// CredentialProviderTokens gives plugins that want them service account tokens.
	CredentialProviderTokens bool
	// MaxContainerRestartPeriod caps the crash-loop back-off; 300 s.
	MaxContainerRestartPeriod time.Duration
	// FirstContainerRestartPeriod is the first crash-loop back-off; 10 s.
	FirstContainerRestartPeriod time.Duration
	// NoRestartRules and NoRestartAll turn the gates ContainerRestartRules and
	// RestartAllContainersOnContainerExits off.
	NoRestartRules, NoRestartAll bool
	// The gates EnvFiles, HostnameOverride, ContainerStopSignals and
	// PodReadyToStartContainersCondition are off.
	NoEnvFiles, NoHostnameOverride, NoStopSignals, NoReadyToStart bool
	// DeadContainers is how many dead instances of each container stay
	// (--maximum-dead-containers-per-container), and DeadContainerTTL how old one
	// is before it may go (--minimum-container-ttl-duration).
	DeadContainers   int
	DeadContainerTTL time.Duration
	// MaxDeadContainers is how many dead containers stay on the node
	// (--maximum-dead-containers); nil for no bound.
	MaxDeadContainers *int

	// ClusterDomain, ClusterDNS and ResolvConf make the pods' resolv.conf.
	ClusterDomain string
	ClusterDNS    []string
	ResolvConf    string
	// SeccompDefault is RuntimeDefault for pods that say nothing.
	SeccompDefault bool
	// CPUCFSQuota sets cpu quotas from limits; the period is 100 ms when zero.
	CPUCFSQuota       bool
	CPUCFSQuotaPeriod time.Duration
	// SingleProcessOOMKill nil takes the kernel's cgroup version's default.
	SingleProcessOOMKill *bool
	// AllowedUnsafeSysctls are patterns that pods may set.
	AllowedUnsafeSysctls []string

	// CgroupsPerQOS makes a cgroup for each pod; without it the runtime's own
	// parent is used.
	CgroupsPerQOS bool
	// CgroupRoot is the cgroup below which kubepods lies; "/".
	CgroupRoot string
	// TraceEndpoint is host:port of an OTLP collector that gets spans of what is
	// done for pods; nil sends none, empty is localhost:4317.
	TraceEndpoint *string
	// TraceSamplingPerMillion is how many pods of a million are traced.
	TraceSamplingPerMillion int32
	// CgroupDriver is "cgroupfs" or "systemd", for a runtime that does not say.
	CgroupDriver string
	// PodPidsLimit bounds the processes of each pod; none when not positive.
	PodPidsLimit int64
	// EnforcePods limits all pods together to what is allocatable.
	EnforcePods bool
	// Enforced are the cgroups of others that are limited to what is reserved
	// for them (enforceNodeAllocatable has system-reserved or kube-reserved).
	Enforced []Reservation
	// ReservedMilliCPU, ReservedMemoryBytes and ReservedPIDs are kept from pods
	// (kubeReserved and systemReserved together).
	ReservedMilliCPU    int64
	ReservedMemoryBytes int64
	ReservedPIDs        int64
	// MaxPods bounds the number of pods; 110.
	MaxPods int64

	// LogMaxSizeBytes is what a container's log is rotated at; it is not when
	// this is not positive. A log has LogMaxFiles files at most (5), LogWorkers
	// rotate at once (1), and a log is looked at every LogInterval at least (10 s).
	LogMaxSizeBytes         int64
	LogMaxFiles, LogWorkers int
	LogInterval             time.Duration
	// ImageGCHighPercent is the usage of the images' disk from which on unused
	// images are removed, down to ImageGCLowPercent; 0 and 100 are never.
	ImageGCHighPercent, ImageGCLowPercent int
	// ImageMinAge is how long an image is left alone after it was first seen,
	// and ImageMaxAge how long it may be unused; 0 is for ever.
	ImageMinAge, ImageMaxAge time.Duration

	// Resize says which resizes of running pods this node can never carry out.
	Resize ResizePolicies

	// PodCIDR is told to the runtime in standalone mode; else the Node's is.
	PodCIDR string
	// NodeDeadline is how long a pod waits for what admission needs and what can
	// still come (the Node object, a device plugin) before it is rejected; 0
	// waits for ever.
	NodeDeadline time.Duration
	// NoPodLevelResources rejects pods with resources of their own: the gate
	// PodLevelResources is off.
	NoPodLevelResources bool
	// DeclaredFeatures are what the Node says that it can do; a pod that needs
	// more is rejected. Nil asks nobody (the gate NodeDeclaredFeatures is off).
	DeclaredFeatures []string
	// Machine says what the machine must be like; nil does not look at it.
	Machine *MachinePolicy
	// IPTablesUtilChains keeps the chains KUBE-FIREWALL and KUBE-IPTABLES-HINT in
	// the network namespace that podsync runs in.
	IPTablesUtilChains bool
	// PodsAPISocket is where Kubernetes' Pods API is served beside the main
	// socket, e.g. /var/lib/kubelet/pods-api/pods-api.sock; empty for nowhere.
	PodsAPISocket string
}

// ResizePolicies are the parts of the node's configuration that rule out some
// resizes of running pods; the zero value rules out none.
type ResizePolicies struct {
	// StaticCPU and StaticMemory: cpuManagerPolicy or memoryManagerPolicy is static.
	StaticCPU, StaticMemory bool
	// ExclusiveCPUs and ExclusiveMemory are the gates
	// InPlacePodVerticalScalingExclusive…, which allow them all the same.
	ExclusiveCPUs, ExclusiveMemory bool
	// Swap: containers may swap.
	Swap bool
	// NoPodLevel and NoInitContainers: the gate
	// InPlacePodLevelResourcesVerticalScaling or
	// InPlacePodVerticalScalingInitContainers is off.
	NoPodLevel, NoInitContainers bool
}

// Reservation is what a cgroup outside of the pods' may use.
type Reservation struct {
	// Kind is what the configuration calls it: system-reserved, kube-reserved,
	// or either with -compressible.
	Kind string
	// Cgroup is its path from the root of the hierarchies; it must exist.
	Cgroup string
	// MilliCPU, MemoryBytes and PIDs; zero limits nothing.
	MilliCPU, MemoryBytes, PIDs int64
}

func (c *Config) applyDefaults() {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&c.RootDir, "/var/lib/kubelet")
	def(&c.PodLogsDir, "/var/log/pods")
	def(&c.CgroupRoot, "/")
	if c.MaxPods == 0 {
		c.MaxPods = 110
	}
}
