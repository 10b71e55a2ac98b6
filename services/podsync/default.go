package podsync

import (
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Default is what a kubelet does that nobody has configured. The node's name and the
// runtime's endpoint are still to be filled in.
func Default() Config {
	return Config{
		RootDir:    "/var/lib/kubelet",
		Node:       NodeConfig{MaxPods: 110},
		Runtime:    RuntimeConfig{RequestTimeout: 2 * time.Minute},
		StaticPods: StaticPodsConfig{CheckFrequency: 20 * time.Second, URLCheckFrequency: 20 * time.Second},
		Admission:  AdmissionConfig{Deadline: 5 * time.Minute, PodLevelResources: true},
		Pods: PodsConfig{
			FirstRestartPeriod: 10 * time.Second, MaxRestartPeriod: 5 * time.Minute,
			RestartRules: true, RestartAll: true, EnvFiles: true, HostnameOverride: true, ReadyToStart: true, ControllerAttaches: true,
			UserNamespaceIDs: 65536, DeadContainers: 1,
		},
		Resize: ResizeConfig{PodLevel: true, InitContainers: true},
		Images: ImagesConfig{
			MaxParallelPulls: 1, PullQPS: 5, PullBurst: 10,
			Verify: true, VerifyPolicy: kubeletv1beta1.NeverVerifyPreloadedImages, CredentialProviderTokens: true,
			GCHighPercent: 85, GCLowPercent: 80, MinAge: 2 * time.Minute,
		},
		Logs:    LogsConfig{Dir: "/var/log/pods", MaxSizeBytes: 10 << 20, MaxFiles: 5, Workers: 1, Interval: 10 * time.Second},
		Network: NetworkConfig{ResolvConf: "/etc/resolv.conf", IPTablesUtilChains: true},
		Cgroups: CgroupsConfig{
			PerQOS: true, Root: "/", Driver: "cgroupfs", CPUCFSQuota: true, CPUCFSQuotaPeriod: 100 * time.Millisecond,
			PodPidsLimit: -1, EnforcePods: true, MemoryQoS: MemoryQoSConfig{Factor: 0.9},
		},
		Machine:       &MachinePolicy{FailSwapOn: true, FailCgroupV1: true},
		PodsAPISocket: "/var/lib/kubelet/pods-api/pods-api.sock",
		PluginsDir:    "/var/lib/kubelet/plugins_registry",
	}
}
