package podsync

import (
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Config says how podsync runs. Begin with Default: a zero field means zero.
type Config struct {
	// RootDir holds volumes and pod directories.
	RootDir string

	Node       NodeConfig
	Runtime    RuntimeConfig
	StaticPods StaticPodsConfig
	Admission  AdmissionConfig
	Pods       PodsConfig
	Resize     ResizeConfig
	Images     ImagesConfig
	Logs       LogsConfig
	Network    NetworkConfig
	Cgroups    CgroupsConfig

	// Tracing sends spans of what is done for pods; nil sends none.
	Tracing *TracingConfig
	// Machine says what the machine must be like; nil does not look at it, as where
	// there is none.
	Machine *MachinePolicy
	// PodsAPISocket is where Kubernetes' Pods API is served beside the main
	// socket, e.g. /var/lib/kubelet/pods-api/pods-api.sock; empty for nowhere.
	PodsAPISocket string
	// PluginsDir is where plugins of the node register themselves, e.g.
	// /var/lib/kubelet/plugins_registry; empty for nowhere.
	PluginsDir string
}

// NodeConfig says which node this is.
type NodeConfig struct {
	// Name is the node's; IP is --node-ip, and empty finds the address.
	Name, IP string
	// ExternalCloud is --cloud-provider=external.
	ExternalCloud bool
	// Standalone: there is no apiserver.
	Standalone bool
	// MaxPods bounds the number of pods, and PodCIDR is their network, in standalone
	// mode; else the Node has both.
	MaxPods int64
	PodCIDR string
}

// RuntimeConfig says which container runtime there is.
type RuntimeConfig struct {
	// Endpoint is shown to people; the connection is in Deps.
	Endpoint string
	// RequestTimeout bounds calls that change something.
	RequestTimeout time.Duration
}

// StaticPodsConfig says where static pods come from.
type StaticPodsConfig struct {
	// Path is a directory or file; empty for none. It is listed every CheckFrequency
	// beside inotify.
	Path           string
	CheckFrequency time.Duration
	// URL serves a Pod or a PodList; empty for none. It is asked every
	// URLCheckFrequency with URLHeader, whose values are secrets.
	URL               string
	URLHeader         map[string][]string
	URLCheckFrequency time.Duration
	// APIReferences lets them name objects of the apiserver: the gate
	// PreventStaticPodAPIReferences is off.
	APIReferences bool
}

// AdmissionConfig says which pods may run.
type AdmissionConfig struct {
	// Deadline is how long a pod waits for what admission needs and what can still
	// come (the Node object, a device plugin) before it is rejected; 0 waits for ever.
	Deadline time.Duration
	// AllowedUnsafeSysctls are patterns that pods may set.
	AllowedUnsafeSysctls []string
	// PodLevelResources is the gate: pods may have resources of their own.
	PodLevelResources bool
	// DeclaredFeatures are what the Node says that it can do; a pod that needs
	// more is rejected. Nil asks nobody (the gate NodeDeclaredFeatures is off).
	DeclaredFeatures []string
}

// PodsConfig says how pods run.
type PodsConfig struct {
	// FirstRestartPeriod is the first crash-loop back-off, MaxRestartPeriod the longest.
	FirstRestartPeriod, MaxRestartPeriod time.Duration
	// RestartRules and RestartAll are the gates ContainerRestartRules and
	// RestartAllContainersOnContainerExits.
	RestartRules, RestartAll bool
	// EnvFiles, HostnameOverride, StopSignals and ReadyToStart are the gates EnvFiles,
	// HostnameOverride, ContainerStopSignals and PodReadyToStartContainersCondition.
	EnvFiles, HostnameOverride, StopSignals, ReadyToStart bool
	// TrustBundles is the gate ClusterTrustBundleProjection.
	TrustBundles bool
	// Certificates is the gate PodCertificateRequest.
	Certificates bool
	// VolumeHealth is the gate CSIVolumeHealth.
	VolumeHealth bool
	// ProjectQuotas is the gate LocalStorageCapacityIsolationFSQuotaMonitoring.
	ProjectQuotas bool
	// SELinuxMount is the gate.
	SELinuxMount bool
	// ControllerAttaches: a controller attaches volumes to the node
	// (enableControllerAttachDetach); else nobody does.
	ControllerAttaches bool
	// SeccompDefault is RuntimeDefault for pods that say nothing.
	SeccompDefault bool
	// SingleProcessOOMKill nil takes the kernel's cgroup version's default.
	SingleProcessOOMKill *bool
	// LimitedSwap: containers may swap.
	LimitedSwap bool
	// UserNamespaceIDs is how many ids a pod with a user namespace of its own
	// gets (userNamespaces.idsPerPod).
	UserNamespaceIDs uint32
	// DeadContainers is how many dead instances of each container stay
	// (--maximum-dead-containers-per-container), and DeadContainerTTL how old one
	// is before it may go (--minimum-container-ttl-duration).
	DeadContainers   int
	DeadContainerTTL time.Duration
	// MaxDeadContainers is how many dead containers stay on the node
	// (--maximum-dead-containers); nil for no bound.
	MaxDeadContainers *int
}

// ResizeConfig are the parts of the node's configuration that rule out some
// resizes of running pods, beside Pods.LimitedSwap.
type ResizeConfig struct {
	// StaticCPU and StaticMemory: cpuManagerPolicy or memoryManagerPolicy is static.
	StaticCPU, StaticMemory bool
	// ExclusiveCPUs and ExclusiveMemory are the gates
	// InPlacePodVerticalScalingExclusive…, which allow them all the same.
	ExclusiveCPUs, ExclusiveMemory bool
	// PodLevel and InitContainers are the gates
	// InPlacePodLevelResourcesVerticalScaling and
	// InPlacePodVerticalScalingInitContainers.
	PodLevel, InitContainers bool
}

// ImagesConfig says how images are pulled, checked and removed.
type ImagesConfig struct {
	// MaxParallelPulls is how many images are pulled at once; no bound when 0.
	MaxParallelPulls int
	// PullQPS is how many pulls begin in a second, after PullBurst at once; no
	// bound when 0.
	PullQPS   float32
	PullBurst int
	// Verify remembers with which credentials images were pulled, and lets
	// pods use those that are present as VerifyPolicy and VerifyAllowlist say
	// (imagePullCredentialsVerificationPolicy, preloadedImagesVerificationAllowlist).
	Verify          bool
	VerifyPolicy    kubeletv1beta1.ImagePullCredentialsVerificationPolicy
	VerifyAllowlist []string
	// CredentialProviderConfig is a file or directory that names plugins for
	// registry credentials, and CredentialProviderBinDir holds them; empty for none.
	CredentialProviderConfig, CredentialProviderBinDir string
	// CredentialProviderTokens gives plugins that want them service account tokens.
	CredentialProviderTokens bool
	// GCHighPercent is the usage of the images' disk from which on unused
	// images are removed, down to GCLowPercent; 0 and 100 are never.
	GCHighPercent, GCLowPercent int
	// MinAge is how long an image is left alone after it was first seen,
	// and MaxAge how long it may be unused; 0 is for ever.
	MinAge, MaxAge time.Duration
}

// LogsConfig says where containers' logs lie and how long they may grow.
type LogsConfig struct {
	// Dir holds the logs. Beside it lies the directory "containers" with links to them.
	Dir string
	// MaxSizeBytes is what a container's log is rotated at; it is not when this is not
	// positive. A log has MaxFiles files at most, Workers rotate at once, and a log is
	// looked at every Interval at least.
	MaxSizeBytes      int64
	MaxFiles, Workers int
	Interval          time.Duration
}

// NetworkConfig says what pods find of the network.
type NetworkConfig struct {
	// ClusterDomain, ClusterDNS and ResolvConf make the pods' resolv.conf.
	ClusterDomain string
	ClusterDNS    []string
	ResolvConf    string
	// IPTablesUtilChains keeps the chains KUBE-FIREWALL and KUBE-IPTABLES-HINT in
	// the network namespace that podsync runs in.
	IPTablesUtilChains bool
}

// TracingConfig says where spans go.
type TracingConfig struct {
	// Endpoint is host:port of an OTLP collector.
	Endpoint string
	// SamplingPerMillion is how many pods of a million are traced.
	SamplingPerMillion int32
}

// MachinePolicy says what the machine must be like for pods to run on it.
type MachinePolicy struct {
	// FailSwapOn and FailCgroupV1 refuse a machine that swaps, or whose main
	// hierarchy is cgroup v1.
	FailSwapOn, FailCgroupV1 bool
	// ProtectKernelDefaults refuses a machine whose kernel settings are not as
	// Kubernetes needs them; else they are set, unless LeaveKernelSettings.
	ProtectKernelDefaults, LeaveKernelSettings bool
}
