package kubeletconfig

import (
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// DefaultEvictionHard are the thresholds on Linux when a configuration file
// sets none.
func DefaultEvictionHard() map[string]string {
	return map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}
}

// legacyDefaults are what flags without a --config file start from.
func legacyDefaults() *kubeletv1beta1.KubeletConfiguration {
	c := &kubeletv1beta1.KubeletConfiguration{}
	c.Authentication.Anonymous.Enabled = ptr(true)
	c.Authentication.Webhook.Enabled = ptr(false)
	c.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow
	c.ReadOnlyPort = 10255
	setDefaults(c)
	return c
}

// setDefaults fills every unset field that has a default.
// Source: the field documentation of kubelet.config.k8s.io/v1beta1.
func setDefaults(c *kubeletv1beta1.KubeletConfiguration) {
	c.APIVersion = kubeletv1beta1.SchemeGroupVersion.String()
	c.Kind = "KubeletConfiguration"
	defaultServing(c)
	defaultSources(c)
	defaultImages(c)
	defaultResources(c)
	defaultNode(c)
}

func defaultServing(c *kubeletv1beta1.KubeletConfiguration) {
	pointer(&c.EnableServer, true)
	value(&c.Address, "0.0.0.0")
	value(&c.Port, 10250)
	auth := &c.Authentication
	pointer(&auth.Anonymous.Enabled, false)
	pointer(&auth.Webhook.Enabled, true)
	duration(&auth.Webhook.CacheTTL, 2*time.Minute)
	value(&c.Authorization.Mode, kubeletv1beta1.KubeletAuthorizationModeWebhook)
	duration(&c.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	duration(&c.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	pointer(&c.EnableDebuggingHandlers, true)
	pointer(&c.EnableSystemLogHandler, true)
	pointer(&c.EnableSystemLogQuery, false)
	pointer(&c.EnableProfilingHandler, true)
	pointer(&c.EnableDebugFlagsHandler, true)
	pointer(&c.HealthzPort, 10248)
	value(&c.HealthzBindAddress, "127.0.0.1")
	duration(&c.StreamingConnectionIdleTimeout, 4*time.Hour)
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

func defaultSources(c *kubeletv1beta1.KubeletConfiguration) {
	duration(&c.SyncFrequency, time.Minute)
	duration(&c.FileCheckFrequency, 20*time.Second)
	duration(&c.HTTPCheckFrequency, 20*time.Second)
	value(&c.PodLogsDir, "/var/log/pods")
	value(&c.ConfigMapAndSecretChangeDetectionStrategy, kubeletv1beta1.WatchChangeDetectionStrategy)
	value(&c.MaxPods, 110)
	pointer(&c.RegisterNode, true)
	pointer(&c.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: longestRestartPeriod(c.FeatureGates)})
	pointer(&c.ResolverConfig, "/etc/resolv.conf")
	value(&c.HairpinMode, kubeletv1beta1.PromiscuousBridge)
	pointer(&c.MakeIPTablesUtilChains, true)
	pointer(&c.IPTablesMasqueradeBit, 14)
	pointer(&c.IPTablesDropBit, 15)
	value(&c.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
	duration(&c.VolumeStatsAggPeriod, time.Minute)
	pointer(&c.EnableControllerAttachDetach, true)
}

// longestRestartPeriod is the default cap of the back-off between restarts.
// Source: KEP-4603.
func longestRestartPeriod(gates map[string]bool) time.Duration {
	reduced, said := gates["ReduceDefaultCrashLoopBackOffDecay"]
	if !said {
		reduced = gates["AllAlpha"]
	}
	if reduced {
		return time.Minute
	}
	return 5 * time.Minute
}

func defaultImages(c *kubeletv1beta1.KubeletConfiguration) {
	value(&c.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	duration(&c.RuntimeRequestTimeout, 2*time.Minute)
	pointer(&c.RegistryPullQPS, 5)
	value(&c.RegistryBurst, 10)
	if c.MaxParallelImagePulls != nil && *c.MaxParallelImagePulls > 1 {
		pointer(&c.SerializeImagePulls, false)
	}
	pointer(&c.SerializeImagePulls, true)
	value(&c.ImagePullCredentialsVerificationPolicy, kubeletv1beta1.NeverVerifyPreloadedImages)
	duration(&c.ImageMinimumGCAge, 2*time.Minute)
	pointer(&c.ImageGCHighThresholdPercent, 85)
	pointer(&c.ImageGCLowThresholdPercent, 80)
	value(&c.ContainerLogMaxSize, "10Mi")
	pointer(&c.ContainerLogMaxFiles, 5)
	pointer(&c.ContainerLogMaxWorkers, 1)
	pointer(&c.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	pointer(&c.SeccompDefault, false)
	if c.UserNamespaces == nil {
		c.UserNamespaces = &kubeletv1beta1.UserNamespaces{}
	}
	pointer(&c.UserNamespaces.IDsPerPod, 65536)
}

func defaultResources(c *kubeletv1beta1.KubeletConfiguration) {
	value(&c.CgroupDriver, "cgroupfs")
	pointer(&c.CgroupsPerQOS, true)
	if c.EnforceNodeAllocatable == nil {
		c.EnforceNodeAllocatable = []string{"pods"}
	}
	pointer(&c.CPUCFSQuota, true)
	pointer(&c.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	pointer(&c.PodPidsLimit, -1)
	value(&c.CPUManagerPolicy, "none")
	duration(&c.CPUManagerReconcilePeriod, 10*time.Second)
	value(&c.MemoryManagerPolicy, kubeletv1beta1.NoneMemoryManagerPolicy)
	value(&c.TopologyManagerPolicy, kubeletv1beta1.NoneTopologyManagerPolicy)
	value(&c.TopologyManagerScope, kubeletv1beta1.ContainerTopologyManagerScope)
	pointer(&c.MemoryThrottlingFactor, 0.9)
	value(&c.MemoryReservationPolicy, kubeletv1beta1.NoneMemoryReservationPolicy)
	pointer(&c.SingleProcessOOMKill, !cgroupV2())
	pointer(&c.FailCgroupV1, true)
	pointer(&c.FailSwapOn, true)
	pointer(&c.OOMScoreAdj, -999)
	value(&c.MaxOpenFiles, 1000000)
	pointer(&c.LocalStorageCapacityIsolation, true)
}

func defaultNode(c *kubeletv1beta1.KubeletConfiguration) {
	duration(&c.EvictionPressureTransitionPeriod, 5*time.Minute)
	pointer(&c.MergeDefaultEvictionSettings, false)
	pointer(&c.KubeAPIQPS, 50)
	value(&c.KubeAPIBurst, 100)
	value(&c.ContentType, "application/vnd.kubernetes.protobuf")
	pointer(&c.EventRecordQPS, 50)
	value(&c.EventBurst, 100)
	// The report period follows the update period when only that one was set.
	if c.NodeStatusReportFrequency.Duration == 0 && c.NodeStatusUpdateFrequency.Duration != 0 {
		c.NodeStatusReportFrequency = c.NodeStatusUpdateFrequency
	}
	duration(&c.NodeStatusUpdateFrequency, 10*time.Second)
	duration(&c.NodeStatusReportFrequency, 5*time.Minute)
	value(&c.NodeLeaseDurationSeconds, 40)
	pointer(&c.NodeStatusMaxImages, 50)
}

// defaultEviction is apart from setDefaults: only a configuration file brings
// the thresholds, flags alone do not.
func defaultEviction(c *kubeletv1beta1.KubeletConfiguration) {
	if c.EvictionHard == nil {
		c.EvictionHard = DefaultEvictionHard()
		return
	}
	if c.MergeDefaultEvictionSettings == nil || !*c.MergeDefaultEvictionSettings {
		return
	}
	for signal, threshold := range DefaultEvictionHard() {
		if _, set := c.EvictionHard[signal]; !set {
			c.EvictionHard[signal] = threshold
		}
	}
}

// CgroupV2 tells whether the host's main hierarchy is the unified one.
func CgroupV2() bool { return cgroupV2() }

// cgroupV2 tells whether the host's main hierarchy is the unified one.
func cgroupV2() bool {
	var fs unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

func ptr[T any](v T) *T { return &v }

func pointer[T any](field **T, v T) {
	if *field == nil {
		*field = &v
	}
}

func value[T comparable](field *T, v T) {
	var zero T
	if *field == zero {
		*field = v
	}
}

func duration(field *metav1.Duration, v time.Duration) {
	if field.Duration == 0 {
		field.Duration = v
	}
}
