package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/clientmetrics"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeclient"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/tracing"
	podsyncservice "github.com/polylet/polylet/services/podsync"
)

// nodeDeadline is how long a pod waits for the Node object before it is
// rejected.
const nodeDeadline = 5 * time.Minute

// podsyncGCPercent lets podsync's heap grow to double: it works in bursts, and
// with half as many collections a pod's start costs a sixth less CPU.
const podsyncGCPercent = 100

// newPodsyncCommand is `polylet podsync`: it runs the pods.
func newPodsyncCommand() *cobra.Command {
	return serviceCommand("podsync", "Run the pods that the apiserver and static manifests ask for", runPodsync)
}

func runPodsync(ctx context.Context, loaded *kubeletconfig.Loaded) error {
	// Of the five it is the one that must not work beside another agent.
	ctx, release, err := holdLock(ctx, loaded, klog.FromContext(ctx))
	if err != nil {
		return err
	}
	defer release()
	d, err := daemon.New(daemon.Options{
		Service:             "podsync",
		NodeName:            loaded.NodeName,
		SocketDir:           loaded.Flags.SocketDir,
		SocketGroup:         loaded.Flags.SocketGroup,
		ConfigJSON:          loaded.ConfigzJSON,
		SecretConfigJSON:    loaded.SecretConfigzJSON,
		ConfigOrigins:       loaded.Origins,
		ConfigWithoutEffect: withoutEffect(loaded),
		Tracing:             traced(loaded),
		GCPercent:           podsyncGCPercent,
		Access:              accessTo("podsync"),
		Users:               serviceUsers(loaded),
	})
	if err != nil {
		return err
	}
	if err := clientmetrics.Register(d.Metrics()); err != nil {
		return err
	}
	sayWithoutEffect(d, loaded)
	config, err := podsyncConfig(loaded)
	if err != nil {
		return err
	}
	addTracing(&config, loaded.Config.Tracing)
	deps := podsyncservice.Deps{Metrics: d.Metrics(), Health: d.Health(), Epoch: d.Epoch()}
	credential, err := podsyncClients(loaded, d.Tracing(), d.Log(), &deps)
	if err != nil {
		return err
	}
	runtime, err := podsyncservice.DialRuntime(loaded.Config.ContainerRuntimeEndpoint)
	if err != nil {
		return err
	}
	defer runtime.Close()
	deps.Runtime, deps.Images = runtime, runtime
	if endpoint := loaded.Config.ImageServiceEndpoint; endpoint != "" && endpoint != loaded.Config.ContainerRuntimeEndpoint {
		images, err := podsyncservice.DialRuntime(endpoint)
		if err != nil {
			return err
		}
		defer images.Close()
		deps.Images = images
	}
	service, err := podsyncservice.New(config, deps)
	if err != nil {
		return err
	}
	service.Register(d.Server())
	longest := max(2*loaded.Config.SyncFrequency.Duration, syncLoopTimeout)
	d.AddCheck(daemon.Check{Name: "syncloop", Run: func(context.Context) error { return service.SyncLoop(longest) }})
	return d.Run(ctx, append(followCredential(credential, credentialSource(loaded), d.Health()), service.Run)...)
}

// syncLoopTimeout is how long podsync's loop may take at least until it counts
// as stuck.
const syncLoopTimeout = 5 * time.Minute

// podsyncClients makes the clients of the apiserver; none standalone. Events
// have a rate of their own, so that they never hold a status up.
func podsyncClients(loaded *kubeletconfig.Loaded, spans *tracing.Provider, log klog.Logger, deps *podsyncservice.Deps) (*kubeclient.Follower, error) {
	if loaded.Standalone {
		return nil, nil
	}
	c := loaded.Config
	credential := kubeclient.Follow(credentialSource(loaded), log)
	cfg := credential.Config(float32(*c.KubeAPIQPS), int(c.KubeAPIBurst),
		"polylet-podsync/"+buildinfo.Get().Version, kubeclient.ContentType(c.ContentType), kubeclient.Wrapped(spans.Transport))
	var err error
	if deps.Client, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, fmt.Errorf("client for apiserver %s: %w", cfg.Host, err)
	}
	deps.Events, err = eventsClient(cfg, c)
	return credential, err
}

// eventsClient is a client for events, with their own rate.
func eventsClient(cfg *rest.Config, c *kubeletv1beta1.KubeletConfiguration) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(kubeclient.Rated(cfg, float32(*c.EventRecordQPS), int(c.EventBurst)))
	if err != nil {
		return nil, fmt.Errorf("client for events to apiserver %s: %w", cfg.Host, err)
	}
	return client, nil
}

// addressesOf leaves out what is no address of a name server, and says so.
func addressesOf(clusterDNS []string) []string {
	var out []string
	for _, text := range clusterDNS {
		if net.ParseIP(strings.TrimSpace(text)) == nil {
			klog.Background().Info("clusterDNS has something that is no IP address; it is left out", "value", text)
			continue
		}
		out = append(out, strings.TrimSpace(text))
	}
	return out
}

// restartsOf says how containers are restarted. A cap that is configured stands
// above what the gates say.
func restartsOf(out *podsyncservice.Config, loaded *kubeletconfig.Loaded) {
	if loaded.FeatureEnabled("ReduceDefaultCrashLoopBackOffDecay") {
		out.FirstContainerRestartPeriod, out.MaxContainerRestartPeriod = time.Second, time.Minute
	}
	if m := loaded.Config.CrashLoopBackOff.MaxContainerRestartPeriod; m != nil && loaded.FeatureEnabled("KubeletCrashLoopBackOffMax") {
		out.MaxContainerRestartPeriod = m.Duration
	}
	out.NoRestartRules = !loaded.FeatureEnabled("ContainerRestartRules")
	out.NoRestartAll = !loaded.FeatureEnabled("RestartAllContainersOnContainerExits")
}

// podGatesOf says what of pods is not looked at or not shown.
func podGatesOf(out *podsyncservice.Config, loaded *kubeletconfig.Loaded) {
	out.NoEnvFiles = !loaded.FeatureEnabled("EnvFiles")
	out.NoHostnameOverride = !loaded.FeatureEnabled("HostnameOverride")
	out.NoStopSignals = !loaded.FeatureEnabled("ContainerStopSignals")
	out.NoReadyToStart = !loaded.FeatureEnabled("PodReadyToStartContainersCondition")
}

func podsyncConfig(loaded *kubeletconfig.Loaded) (podsyncservice.Config, error) {
	c := loaded.Config
	out := podsyncservice.Config{
		NodeName: loaded.NodeName, NodeIP: loaded.Flags.NodeIP, ExternalCloud: loaded.Flags.CloudProvider == "external",
		Standalone: loaded.Standalone, RootDir: loaded.Flags.RootDir, PodLogsDir: c.PodLogsDir,
		StaticPodPath: c.StaticPodPath, FileCheckFrequency: c.FileCheckFrequency.Duration,
		StaticPodURL: c.StaticPodURL, StaticPodURLHeader: c.StaticPodURLHeader, HTTPCheckFrequency: c.HTTPCheckFrequency.Duration,
		RuntimeEndpoint: c.ContainerRuntimeEndpoint, RuntimeRequestTimeout: c.RuntimeRequestTimeout.Duration,
		ClusterDomain: c.ClusterDomain, ClusterDNS: addressesOf(c.ClusterDNS), SingleProcessOOMKill: c.SingleProcessOOMKill,
		AllowedUnsafeSysctls: c.AllowedUnsafeSysctls, CgroupRoot: c.CgroupRoot, CgroupDriver: c.CgroupDriver,
		EnforcePods: slices.Contains(c.EnforceNodeAllocatable, "pods"), MaxPods: int64(c.MaxPods),
		PodCIDR: c.PodCIDR, NodeDeadline: nodeDeadline,
		LogMaxFiles: int(*c.ContainerLogMaxFiles), LogWorkers: int(*c.ContainerLogMaxWorkers), LogInterval: c.ContainerLogMonitorInterval.Duration,
		ImageGCHighPercent: int(*c.ImageGCHighThresholdPercent), ImageGCLowPercent: int(*c.ImageGCLowThresholdPercent),
		ImageMinAge: c.ImageMinimumGCAge.Duration, ImageMaxAge: c.ImageMaximumGCAge.Duration,
		PodsAPISocket: filepath.Join(loaded.Flags.RootDir, "pods-api", "pods-api.sock"),
	}
	out.DeadContainers, out.DeadContainerTTL = int(loaded.Flags.MaxDeadContainersPerContainer), loaded.Flags.MinimumContainerTTL
	if most := int(loaded.Flags.MaxDeadContainers); most >= 0 {
		out.MaxDeadContainers = &most
	}
	out.UserNamespaceIDs = uint32(*c.UserNamespaces.IDsPerPod)
	out.PullQPS, out.PullBurst = float32(*c.RegistryPullQPS), int(c.RegistryBurst)
	out.VerifyPulls = loaded.FeatureEnabled("KubeletEnsureSecretPulledImages")
	out.VerifyPolicy, out.VerifyAllowlist = c.ImagePullCredentialsVerificationPolicy, c.PreloadedImagesVerificationAllowlist
	out.CredentialProviderConfig, out.CredentialProviderBinDir = loaded.Flags.CredentialProviderConfig, loaded.Flags.CredentialProviderBinDir
	out.CredentialProviderTokens = loaded.FeatureEnabled("KubeletServiceAccountTokenForCredentialProviders")
	out.Resize = podsyncservice.ResizePolicies{
		StaticCPU: c.CPUManagerPolicy == "static", StaticMemory: c.MemoryManagerPolicy == "Static",
		ExclusiveCPUs: loaded.FeatureEnabled("InPlacePodVerticalScalingExclusiveCPUs"), ExclusiveMemory: loaded.FeatureEnabled("InPlacePodVerticalScalingExclusiveMemory"),
		Swap:       c.MemorySwap.SwapBehavior == "LimitedSwap",
		NoPodLevel: !loaded.FeatureEnabled("InPlacePodLevelResourcesVerticalScaling"), NoInitContainers: !loaded.FeatureEnabled("InPlacePodVerticalScalingInitContainers"),
	}
	out.SeccompDefault = c.SeccompDefault != nil && *c.SeccompDefault
	out.CPUCFSQuota = c.CPUCFSQuota == nil || *c.CPUCFSQuota
	out.Machine = machinePolicy(loaded)
	out.IPTablesUtilChains = c.MakeIPTablesUtilChains == nil || *c.MakeIPTablesUtilChains
	out.CgroupsPerQOS = c.CgroupsPerQOS == nil || *c.CgroupsPerQOS
	out.AllowAPIReferences = !loaded.FeatureEnabled("PreventStaticPodAPIReferences")
	out.NoPodLevelResources = !loaded.FeatureEnabled("PodLevelResources")
	out.DeclaredFeatures = declaredFeatures(loaded)
	if c.CPUCFSQuotaPeriod != nil {
		out.CPUCFSQuotaPeriod = c.CPUCFSQuotaPeriod.Duration
	}
	if c.ResolverConfig != nil {
		out.ResolvConf = *c.ResolverConfig
	}
	if c.PodPidsLimit != nil {
		out.PodPidsLimit = *c.PodPidsLimit
	}
	restartsOf(&out, loaded)
	podGatesOf(&out, loaded)
	switch {
	case c.SerializeImagePulls == nil || *c.SerializeImagePulls:
		out.MaxParallelPulls = 1
	case c.MaxParallelImagePulls != nil:
		out.MaxParallelPulls = int(*c.MaxParallelImagePulls)
	}
	size, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	if err != nil {
		return out, fmt.Errorf("containerLogMaxSize %q: %w", c.ContainerLogMaxSize, err)
	}
	out.LogMaxSizeBytes = size.Value()
	err = reservations(&out, c)
	return out, err
}

// machinePolicy is what the configuration asks of the machine.
func machinePolicy(loaded *kubeletconfig.Loaded) *podsyncservice.MachinePolicy {
	c := loaded.Config
	return &podsyncservice.MachinePolicy{
		FailSwapOn: c.FailSwapOn == nil || *c.FailSwapOn, FailCgroupV1: c.FailCgroupV1 == nil || *c.FailCgroupV1,
		ProtectKernelDefaults: c.ProtectKernelDefaults, LeaveKernelSettings: loaded.Flags.LeaveKernelSettings,
	}
}

// reservations fills in what is kept from pods, and for whom that is enforced.
func reservations(out *podsyncservice.Config, c *kubeletv1beta1.KubeletConfiguration) error {
	kubeList, systemList, err := reservedLists(c)
	if err != nil {
		return err
	}
	kube, err := reservation("kubeReserved", kubeList)
	if err != nil {
		return err
	}
	system, err := reservation("systemReserved", systemList)
	if err != nil {
		return err
	}
	out.ReservedMilliCPU = kube.MilliCPU + system.MilliCPU
	out.ReservedMemoryBytes = kube.MemoryBytes + system.MemoryBytes
	out.ReservedPIDs = kube.PIDs + system.PIDs
	kube.Cgroup, system.Cgroup = c.KubeReservedCgroup, c.SystemReservedCgroup
	for kind, r := range map[string]podsyncservice.Reservation{"system-reserved": system, "kube-reserved": kube} {
		switch r.Kind = kind; {
		case slices.Contains(c.EnforceNodeAllocatable, kind):
		case slices.Contains(c.EnforceNodeAllocatable, kind+"-compressible"):
			r.Kind, r.MemoryBytes, r.PIDs = kind+"-compressible", 0, 0
		default:
			continue
		}
		if !strings.HasPrefix(r.Cgroup, "/") {
			r.Cgroup = "/" + r.Cgroup
		}
		out.Enforced = append(out.Enforced, r)
	}
	slices.SortFunc(out.Enforced, func(a, b podsyncservice.Reservation) int { return strings.Compare(b.Kind, a.Kind) })
	return nil
}

// reservedLists are kubeReserved and systemReserved; reservedSystemCPUs stands
// for the processors of both.
func reservedLists(c *kubeletv1beta1.KubeletConfiguration) (kube, system map[string]string, err error) {
	if c.ReservedSystemCPUs == "" {
		return c.KubeReserved, c.SystemReserved, nil
	}
	cpus, err := cpuset.Parse(c.ReservedSystemCPUs)
	if err != nil {
		return nil, nil, fmt.Errorf("reservedSystemCPUs %q: %w; write it as 0-1,4", c.ReservedSystemCPUs, err)
	}
	kube, system = maps.Clone(c.KubeReserved), maps.Clone(c.SystemReserved)
	delete(kube, "cpu")
	if system == nil {
		system = map[string]string{}
	}
	system["cpu"] = strconv.Itoa(cpus.Size())
	return kube, system, nil
}

func reservation(field string, list map[string]string) (podsyncservice.Reservation, error) {
	var r podsyncservice.Reservation
	for name, text := range list {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return r, fmt.Errorf("%s: %s %q: %w", field, name, text, err)
		}
		switch name {
		case "cpu":
			r.MilliCPU = q.MilliValue()
		case "memory":
			r.MemoryBytes = q.Value()
		case "pid":
			r.PIDs = q.Value()
		}
	}
	return r, nil
}
