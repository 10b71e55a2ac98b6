package kubeletconfig

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/polylet/polylet/internal/service"
)

// Flags are the settings that only flags have. What has a field in
// KubeletConfiguration is there.
type Flags struct {
	// ConfigFile is --config, ConfigDir --config-dir.
	ConfigFile, ConfigDir string
	// ConfigSlice is --config-slice, ours: the configuration as polylet run hands it
	// to a service; it goes before ConfigFile and ConfigDir.
	ConfigSlice string
	// FollowSlice is --follow-config-slice, ours: the process reads the files while ConfigSlice
	// is not there, and ends in order when it is, or when ConfigSlice
	// says something else of what it uses, for a service manager to start it again.
	FollowSlice bool
	// Kubeconfig is --kubeconfig; empty (and BootstrapKubeconfig too): standalone.
	Kubeconfig string
	// BootstrapKubeconfig is --bootstrap-kubeconfig.
	BootstrapKubeconfig string
	// RootDir is --root-dir, CertDir --cert-dir.
	RootDir, CertDir string
	// HostnameOverride is --hostname-override.
	HostnameOverride string
	// NodeIP is --node-ip: "", one address, or an IPv4 and an IPv6 with a comma.
	NodeIP string
	// NodeLabels are --node-labels.
	NodeLabels map[string]string
	// CloudProvider is --cloud-provider: "" or "external".
	CloudProvider string
	// RuntimeCgroups is --runtime-cgroups.
	RuntimeCgroups string
	// CredentialProviderConfig is --image-credential-provider-config (file or
	// directory), CredentialProviderBinDir --image-credential-provider-bin-dir.
	CredentialProviderConfig, CredentialProviderBinDir string
	// LockFile is --lock-file, ExitOnLockContention --exit-on-lock-contention.
	LockFile             string
	ExitOnLockContention bool
	// HousekeepingInterval is --housekeeping-interval, cAdvisor's.
	HousekeepingInterval time.Duration
	// MinimumContainerTTL, MaxDeadContainersPerContainer and MaxDeadContainers
	// are the deprecated container garbage collection flags.
	MinimumContainerTTL           time.Duration
	MaxDeadContainersPerContainer int32
	MaxDeadContainers             int32

	// SocketDir is --socket-dir, ours: where the five sockets are.
	SocketDir string
	// SocketGroup is --socket-group, ours: who may read from the sockets; ""
	// is the group polylet if it exists.
	SocketGroup string
	// GatewayUser, ProbesUser, StatsUser and NodestatusUser are ours: the users
	// (names or numbers) that these services run as, and so who may call which
	// RPC. Resolve with Loaded.ServiceUser.
	GatewayUser, ProbesUser, StatsUser, NodestatusUser string
	// NodePageAddress is --node-page-address, ours: host:port of the node's page
	// for people; empty for none.
	NodePageAddress string
	// CompatibleStreamVerbs is --compatible-stream-verbs, ours: exec, attach, run
	// and port-forward need the verb of their HTTP method, as with the kubelet,
	// instead of always create.
	CompatibleStreamVerbs bool
	// LeaveKernelSettings is --leave-kernel-settings, ours: kernel settings stay as
	// they are, on a machine that is more than a node.
	LeaveKernelSettings bool
	// LiveConfig is --live-config, ours: polylet run takes changes of ConfigFile and
	// ConfigDir while the node runs; ConfigDeadline is --config-deadline: how long the
	// services run a change well until it is good.
	LiveConfig     bool
	ConfigDeadline time.Duration
	// DynamicConfigDir is --dynamic-config-dir, once the kubelet's: where the owner of the
	// configuration keeps what the cluster has assigned to the node; empty: the cluster is no
	// source.
	DynamicConfigDir string
	// Services is --services, ours: which services `polylet run` supervises;
	// empty is all.
	Services []string

	version string
}

// defaultFlags are the values before any flag.
func defaultFlags() *Flags {
	return &Flags{
		RootDir:                       "/var/lib/kubelet",
		CertDir:                       "/var/lib/kubelet/pki",
		SocketDir:                     "/run/polylet",
		NodePageAddress:               "127.0.0.1:4194",
		LiveConfig:                    true,
		ConfigDeadline:                time.Minute,
		HousekeepingInterval:          10 * time.Second,
		MaxDeadContainersPerContainer: 1,
		MaxDeadContainers:             -1,
	}
}

// AddFlags binds the kubelet's flags and ours to f and to the fields of c,
// which must have its defaults. Values that f and c hold are the defaults.
func AddFlags(fs *pflag.FlagSet, f *Flags, c *kubeletv1beta1.KubeletConfiguration) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	addOwnFlags(fs, f)
	addNodeFlags(fs, f, c)
	addServingFlags(fs, c)
	addSourceFlags(fs, c)
	addImageFlags(fs, c)
	addResourceFlags(fs, c)
	addEvictionFlags(fs, c)
	addIgnoredFlags(fs)
	logsapi.AddFlags(&c.Logging, fs)
	// The library has these only where its own JSON encoder is linked.
	split := &c.Logging.Options.JSON.OutputRoutingOptions
	fs.BoolVar(&split.SplitStream, "log-json-split-stream", split.SplitStream, "Taken for the kubelet's sake: there is one stream of logs, stderr.")
	fs.Var(&split.InfoBufferSize, "log-json-info-buffer-size", "Taken for the kubelet's sake: logs are not buffered.")
}

func addOwnFlags(fs *pflag.FlagSet, f *Flags) {
	fs.StringVar(&f.SocketDir, "socket-dir", f.SocketDir, "Directory of the sockets between the five processes.")
	fs.StringVar(&f.SocketGroup, "socket-group", f.SocketGroup, "Group that may read from the sockets; default: polylet, if it exists.")
	users := f.Users()
	for _, name := range service.Separate() {
		fs.StringVar(users[name], name+"-user", *users[name], "User of "+name+" (name or number), no other service's; default: polylet-"+name+
			", or a free number with polylet run.")
	}
	fs.StringVar(&f.ConfigSlice, "config-slice", f.ConfigSlice, "What polylet run or polylet handout gives a service instead of --config and --config-dir; it is not for people.")
	fs.BoolVar(&f.FollowSlice, "follow-config-slice", f.FollowSlice, "End when --config-slice says something else of what this service uses, or is handed out at all: a service manager starts it again. Not for people.")
	fs.StringVar(&f.NodePageAddress, "node-page-address", f.NodePageAddress, "host:port of the node's page for people and of cAdvisor's metrics, without authentication; empty: none.")
	fs.BoolVar(&f.CompatibleStreamVerbs, "compatible-stream-verbs", f.CompatibleStreamVerbs, "Authorise exec, attach, run and port-forward by their HTTP method, as the kubelet does, instead of always as create: "+
		"whoever has get on nodes/proxy then runs commands over a WebSocket.")
	fs.BoolVar(&f.LeaveKernelSettings, "leave-kernel-settings", f.LeaveKernelSettings, "Do not set vm.overcommit_memory, kernel.panic and the others that Kubernetes wants: for a machine that is more than a node.")
	fs.BoolVar(&f.LiveConfig, "live-config", f.LiveConfig, "polylet run and polylet handout take changes of --config and --config-dir while the node runs, and go back to the last known good configuration when the services do not run a new one well; false: the files are read when it starts, only.")
	fs.StringVar(&f.DynamicConfigDir, "dynamic-config-dir", f.DynamicConfigDir, "Take configurations from the cluster too, from a ConfigMap that an annotation of the Node names, and keep them in this directory; empty: do not.")
	fs.DurationVar(&f.ConfigDeadline, "config-deadline", f.ConfigDeadline, "How long the services run a new configuration well until polylet run counts it as good.")
	fs.StringSliceVar(&f.Services, "services", f.Services, "Services that polylet run supervises; default: all.")
	fs.BoolP("help", "h", false, "Show this text.")
	fs.StringVar(&f.version, "version", "", "Print the version; --version=raw prints all there is to know.")
	fs.Lookup("version").NoOptDefVal = "true"
}

func addNodeFlags(fs *pflag.FlagSet, f *Flags, c *kubeletv1beta1.KubeletConfiguration) {
	fs.StringVar(&f.ConfigFile, "config", f.ConfigFile, "KubeletConfiguration file.")
	fs.StringVar(&f.ConfigDir, "config-dir", f.ConfigDir, "Directory of drop-ins (*.conf) over --config.")
	fs.StringVar(&f.Kubeconfig, "kubeconfig", f.Kubeconfig, "How to reach the apiserver; without it the node is standalone.")
	fs.StringVar(&f.BootstrapKubeconfig, "bootstrap-kubeconfig", f.BootstrapKubeconfig, "How to get a first client certificate.")
	fs.StringVar(&f.RootDir, "root-dir", f.RootDir, "Directory of volumes, plugins and checkpoints.")
	fs.StringVar(&f.CertDir, "cert-dir", f.CertDir, "Directory of certificates.")
	fs.StringVar(&f.HostnameOverride, "hostname-override", f.HostnameOverride, "Name of the node instead of the hostname.")
	fs.StringVar(&f.NodeIP, "node-ip", f.NodeIP, "Address of the node, or an IPv4 and an IPv6 address.")
	fs.Var(&mapValue{target: &f.NodeLabels, separator: "="}, "node-labels", "Labels to register the node with, key=value,…")
	fs.StringVar(&f.CloudProvider, "cloud-provider", f.CloudProvider, "Empty or external.")
	fs.StringVar(&f.RuntimeCgroups, "runtime-cgroups", f.RuntimeCgroups, "Cgroup of the container runtime.")
	fs.StringVar(&f.CredentialProviderConfig, "image-credential-provider-config", f.CredentialProviderConfig, "Credential provider configuration, file or directory.")
	fs.StringVar(&f.CredentialProviderBinDir, "image-credential-provider-bin-dir", f.CredentialProviderBinDir, "Directory of credential provider programs.")
	fs.StringVar(&f.LockFile, "lock-file", f.LockFile, "File to lock against a second agent.")
	fs.BoolVar(&f.ExitOnLockContention, "exit-on-lock-contention", f.ExitOnLockContention, "Exit when somebody else wants the lock file.")
	fs.DurationVar(&f.HousekeepingInterval, "housekeeping-interval", f.HousekeepingInterval, "How often container statistics are collected.")
	fs.DurationVar(&f.MinimumContainerTTL, "minimum-container-ttl-duration", f.MinimumContainerTTL, "Deprecated: age at which dead containers may go.")
	fs.Int32Var(&f.MaxDeadContainersPerContainer, "maximum-dead-containers-per-container", f.MaxDeadContainersPerContainer, "Deprecated: dead instances kept per container.")
	fs.Int32Var(&f.MaxDeadContainers, "maximum-dead-containers", f.MaxDeadContainers, "Deprecated: dead instances kept on the node; negative: no limit.")

	fs.BoolVar(c.RegisterNode, "register-node", *c.RegisterNode, "Register with the apiserver.")
	fs.Var(taintsValue{&c.RegisterWithTaints}, "register-with-taints", "Taints to register with, key=value:effect,…")
	fs.StringVar(&c.ProviderID, "provider-id", c.ProviderID, "The node's id at its cloud.")
	fs.StringVar(&c.PodCIDR, "pod-cidr", c.PodCIDR, "Pod addresses in standalone mode.")
	fs.Var(gatesValue{&c.FeatureGates}, "feature-gates", "Name=true|false,…; added to the file's, key by key.")
	fs.DurationVar(&c.NodeStatusUpdateFrequency.Duration, "node-status-update-frequency", c.NodeStatusUpdateFrequency.Duration, "How often the node's status is computed.")
	fs.Int32Var(c.NodeStatusMaxImages, "node-status-max-images", *c.NodeStatusMaxImages, "Images in the node's status; -1: all.")
	fs.Int32Var(c.KubeAPIQPS, "kube-api-qps", *c.KubeAPIQPS, "Requests per second to the apiserver.")
	fs.Int32Var(&c.KubeAPIBurst, "kube-api-burst", c.KubeAPIBurst, "Burst of requests to the apiserver.")
	fs.StringVar(&c.ContentType, "kube-api-content-type", c.ContentType, "Content type of requests to the apiserver.")
	fs.Int32Var(c.EventRecordQPS, "event-qps", *c.EventRecordQPS, "Events per second.")
	fs.Int32Var(&c.EventBurst, "event-burst", c.EventBurst, "Burst of events.")
}
