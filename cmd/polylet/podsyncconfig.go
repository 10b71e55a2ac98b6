package main

import (
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/polylet/polylet/internal/kubeletconfig"
	podsyncservice "github.com/polylet/polylet/services/podsync"
)

// podsyncConfig is what podsync takes of the node's configuration.
func podsyncConfig(loaded *kubeletconfig.Loaded) (podsyncservice.Config, error) {
	c := loaded.Config
	out := podsyncservice.Default()
	out.RootDir, out.Logs.Dir = loaded.Flags.RootDir, c.PodLogsDir
	out.Node = podsyncservice.NodeConfig{
		Name: loaded.NodeName, IP: loaded.Flags.NodeIP, ExternalCloud: loaded.Flags.CloudProvider == "external",
		Standalone: loaded.Standalone, MaxPods: int64(c.MaxPods), PodCIDR: c.PodCIDR,
	}
	out.Runtime = podsyncservice.RuntimeConfig{Endpoint: c.ContainerRuntimeEndpoint, RequestTimeout: c.RuntimeRequestTimeout.Duration}
	out.StaticPods = podsyncservice.StaticPodsConfig{
		Path: c.StaticPodPath, CheckFrequency: c.FileCheckFrequency.Duration,
		URL: c.StaticPodURL, URLHeader: c.StaticPodURLHeader, URLCheckFrequency: c.HTTPCheckFrequency.Duration,
		APIReferences: !loaded.FeatureEnabled("PreventStaticPodAPIReferences"),
	}
	out.Admission.AllowedUnsafeSysctls = c.AllowedUnsafeSysctls
	out.Admission.PodLevelResources = loaded.FeatureEnabled("PodLevelResources")
	out.Admission.DeclaredFeatures = declaredFeatures(loaded)
	out.Network.ClusterDomain, out.Network.ClusterDNS = c.ClusterDomain, addressesOf(c.ClusterDNS)
	set(&out.Network.ResolvConf, c.ResolverConfig)
	set(&out.Network.IPTablesUtilChains, c.MakeIPTablesUtilChains)
	out.Machine = machinePolicy(loaded)
	out.PodsAPISocket = filepath.Join(loaded.Flags.RootDir, "pods-api", "pods-api.sock")
	out.PluginsDir = filepath.Join(loaded.Flags.RootDir, "plugins_registry")
	podsOf(&out, loaded)
	resizeOf(&out.Resize, loaded)
	imagesOf(&out.Images, loaded)
	if err := logsOf(&out.Logs, c); err != nil {
		return out, err
	}
	return out, cgroupsOf(&out.Cgroups, loaded)
}

// set is what is configured; what is not stays as it is.
func set[T any](out, configured *T) {
	if configured != nil {
		*out = *configured
	}
}

// podsOf says how pods run. A cap of the crash-loop back-off that is configured stands
// above what the gates say.
func podsOf(config *podsyncservice.Config, loaded *kubeletconfig.Loaded) {
	c, out := loaded.Config, &config.Pods
	if loaded.FeatureEnabled("ReduceDefaultCrashLoopBackOffDecay") {
		out.FirstRestartPeriod, out.MaxRestartPeriod = time.Second, time.Minute
	}
	if m := c.CrashLoopBackOff.MaxContainerRestartPeriod; m != nil && loaded.FeatureEnabled("KubeletCrashLoopBackOffMax") {
		out.MaxRestartPeriod = m.Duration
	}
	out.RestartRules = loaded.FeatureEnabled("ContainerRestartRules")
	out.RestartAll = loaded.FeatureEnabled("RestartAllContainersOnContainerExits")
	out.EnvFiles = loaded.FeatureEnabled("EnvFiles")
	out.HostnameOverride = loaded.FeatureEnabled("HostnameOverride")
	out.StopSignals = loaded.FeatureEnabled("ContainerStopSignals")
	out.ReadyToStart = loaded.FeatureEnabled("PodReadyToStartContainersCondition")
	out.TrustBundles = loaded.FeatureEnabled("ClusterTrustBundleProjection")
	out.Certificates = loaded.FeatureEnabled("PodCertificateRequest")
	out.VolumeHealth = loaded.FeatureEnabled("CSIVolumeHealth")
	out.ProjectQuotas = loaded.FeatureEnabled("LocalStorageCapacityIsolationFSQuotaMonitoring")
	out.SELinuxMount = loaded.FeatureEnabled("SELinuxMount")
	set(&out.ControllerAttaches, loaded.Config.EnableControllerAttachDetach)
	set(&out.SeccompDefault, c.SeccompDefault)
	out.SingleProcessOOMKill = c.SingleProcessOOMKill
	out.LimitedSwap = c.MemorySwap.SwapBehavior == "LimitedSwap"
	out.UserNamespaceIDs = uint32(*c.UserNamespaces.IDsPerPod)
	out.DeadContainers, out.DeadContainerTTL = int(loaded.Flags.MaxDeadContainersPerContainer), loaded.Flags.MinimumContainerTTL
	if most := int(loaded.Flags.MaxDeadContainers); most >= 0 {
		out.MaxDeadContainers = &most
	}
}

// resizeOf says which resizes are never carried out.
func resizeOf(out *podsyncservice.ResizeConfig, loaded *kubeletconfig.Loaded) {
	out.StaticCPU, out.StaticMemory = loaded.Config.CPUManagerPolicy == "static", loaded.Config.MemoryManagerPolicy == "Static"
	out.ExclusiveCPUs = loaded.FeatureEnabled("InPlacePodVerticalScalingExclusiveCPUs")
	out.ExclusiveMemory = loaded.FeatureEnabled("InPlacePodVerticalScalingExclusiveMemory")
	out.PodLevel = loaded.FeatureEnabled("InPlacePodLevelResourcesVerticalScaling")
	out.InitContainers = loaded.FeatureEnabled("InPlacePodVerticalScalingInitContainers")
}

// imagesOf says how images are pulled, checked and removed.
func imagesOf(out *podsyncservice.ImagesConfig, loaded *kubeletconfig.Loaded) {
	c := loaded.Config
	out.MaxParallelPulls = 1
	if c.SerializeImagePulls != nil && !*c.SerializeImagePulls {
		out.MaxParallelPulls = 0
		if c.MaxParallelImagePulls != nil {
			out.MaxParallelPulls = int(*c.MaxParallelImagePulls)
		}
	}
	out.PullQPS, out.PullBurst = float32(*c.RegistryPullQPS), int(c.RegistryBurst)
	out.Verify = loaded.FeatureEnabled("KubeletEnsureSecretPulledImages")
	out.VerifyPolicy, out.VerifyAllowlist = c.ImagePullCredentialsVerificationPolicy, c.PreloadedImagesVerificationAllowlist
	out.CredentialProviderConfig, out.CredentialProviderBinDir = loaded.Flags.CredentialProviderConfig, loaded.Flags.CredentialProviderBinDir
	out.CredentialProviderTokens = loaded.FeatureEnabled("KubeletServiceAccountTokenForCredentialProviders")
	out.GCHighPercent, out.GCLowPercent = int(*c.ImageGCHighThresholdPercent), int(*c.ImageGCLowThresholdPercent)
	out.MinAge, out.MaxAge = c.ImageMinimumGCAge.Duration, c.ImageMaximumGCAge.Duration
}

// logsOf says how long logs may grow.
func logsOf(out *podsyncservice.LogsConfig, c *kubeletv1beta1.KubeletConfiguration) error {
	out.MaxFiles, out.Workers = int(*c.ContainerLogMaxFiles), int(*c.ContainerLogMaxWorkers)
	out.Interval = c.ContainerLogMonitorInterval.Duration
	size, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	if err != nil {
		return fmt.Errorf("containerLogMaxSize %q: %w", c.ContainerLogMaxSize, err)
	}
	out.MaxSizeBytes = size.Value()
	return nil
}

// cgroupsOf says what pods may use.
func cgroupsOf(out *podsyncservice.CgroupsConfig, loaded *kubeletconfig.Loaded) error {
	c := loaded.Config
	set(&out.PerQOS, c.CgroupsPerQOS)
	out.Root, out.Driver = c.CgroupRoot, c.CgroupDriver
	if out.Root == "" {
		out.Root = "/"
	}
	set(&out.CPUCFSQuota, c.CPUCFSQuota)
	if c.CPUCFSQuotaPeriod != nil {
		out.CPUCFSQuotaPeriod = c.CPUCFSQuotaPeriod.Duration
	}
	set(&out.PodPidsLimit, c.PodPidsLimit)
	out.EnforcePods = slices.Contains(c.EnforceNodeAllocatable, "pods")
	out.System = c.SystemCgroups
	out.MemoryQoS.On = loaded.FeatureEnabled("MemoryQoS")
	out.MemoryQoS.Tiered = c.MemoryReservationPolicy == kubeletv1beta1.TieredReservationMemoryReservationPolicy
	set(&out.MemoryQoS.Factor, c.MemoryThrottlingFactor)
	if text, ok := c.QOSReserved["memory"]; ok && loaded.FeatureEnabled("QOSReserved") {
		percent, err := strconv.ParseInt(strings.TrimSuffix(text, "%"), 10, 64)
		if err != nil {
			return fmt.Errorf("qosReserved: memory %q: %w; write it as 50%%", text, err)
		}
		out.QOSReserved = &percent
	}
	return reservations(out, c)
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

// machinePolicy is what the configuration asks of the machine.
func machinePolicy(loaded *kubeletconfig.Loaded) *podsyncservice.MachinePolicy {
	c := loaded.Config
	return &podsyncservice.MachinePolicy{
		FailSwapOn: c.FailSwapOn == nil || *c.FailSwapOn, FailCgroupV1: c.FailCgroupV1 == nil || *c.FailCgroupV1,
		ProtectKernelDefaults: c.ProtectKernelDefaults, LeaveKernelSettings: loaded.Flags.LeaveKernelSettings,
	}
}

// reservations fills in what is kept from pods, and for whom that is enforced.
func reservations(out *podsyncservice.CgroupsConfig, c *kubeletv1beta1.KubeletConfiguration) error {
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
