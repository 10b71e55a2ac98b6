package kubeletconfig

import (
	"github.com/spf13/pflag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// field is the help text of a flag that sets a field of KubeletConfiguration.
func field(name string) string {
	return "Sets " + name + " of the configuration file, and goes before it."
}

func addServingFlags(fs *pflag.FlagSet, c *kubeletv1beta1.KubeletConfiguration) {
	auth, authz := &c.Authentication, &c.Authorization
	fs.BoolVar(c.EnableServer, "enable-server", *c.EnableServer, field("enableServer"))
	fs.StringVar(&c.Address, "address", c.Address, field("address"))
	fs.Int32Var(&c.Port, "port", c.Port, field("port"))
	fs.Int32Var(&c.ReadOnlyPort, "read-only-port", c.ReadOnlyPort, field("readOnlyPort"))
	fs.StringVar(&c.TLSCertFile, "tls-cert-file", c.TLSCertFile, field("tlsCertFile"))
	fs.StringVar(&c.TLSPrivateKeyFile, "tls-private-key-file", c.TLSPrivateKeyFile, field("tlsPrivateKeyFile"))
	fs.StringSliceVar(&c.TLSCipherSuites, "tls-cipher-suites", c.TLSCipherSuites, field("tlsCipherSuites"))
	fs.StringVar(&c.TLSMinVersion, "tls-min-version", c.TLSMinVersion, field("tlsMinVersion"))
	fs.BoolVar(&c.RotateCertificates, "rotate-certificates", c.RotateCertificates, field("rotateCertificates"))
	fs.BoolVar(&c.ServerTLSBootstrap, "rotate-server-certificates", c.ServerTLSBootstrap, field("serverTLSBootstrap"))
	fs.StringVar(&auth.X509.ClientCAFile, "client-ca-file", auth.X509.ClientCAFile, field("authentication.x509.clientCAFile"))
	fs.BoolVar(auth.Anonymous.Enabled, "anonymous-auth", *auth.Anonymous.Enabled, field("authentication.anonymous.enabled"))
	fs.BoolVar(auth.Webhook.Enabled, "authentication-token-webhook", *auth.Webhook.Enabled, field("authentication.webhook.enabled"))
	fs.DurationVar(&auth.Webhook.CacheTTL.Duration, "authentication-token-webhook-cache-ttl", auth.Webhook.CacheTTL.Duration, field("authentication.webhook.cacheTTL"))
	fs.Var(textValue[kubeletv1beta1.KubeletAuthorizationMode]{&authz.Mode}, "authorization-mode", field("authorization.mode"))
	fs.DurationVar(&authz.Webhook.CacheAuthorizedTTL.Duration, "authorization-webhook-cache-authorized-ttl", authz.Webhook.CacheAuthorizedTTL.Duration, field("authorization.webhook.cacheAuthorizedTTL"))
	fs.DurationVar(&authz.Webhook.CacheUnauthorizedTTL.Duration, "authorization-webhook-cache-unauthorized-ttl", authz.Webhook.CacheUnauthorizedTTL.Duration, field("authorization.webhook.cacheUnauthorizedTTL"))
	fs.BoolVar(c.EnableDebuggingHandlers, "enable-debugging-handlers", *c.EnableDebuggingHandlers, field("enableDebuggingHandlers"))
	fs.BoolVar(&c.EnableContentionProfiling, "contention-profiling", c.EnableContentionProfiling, field("enableContentionProfiling"))
	fs.Int32Var(c.HealthzPort, "healthz-port", *c.HealthzPort, field("healthzPort"))
	fs.StringVar(&c.HealthzBindAddress, "healthz-bind-address", c.HealthzBindAddress, field("healthzBindAddress"))
	fs.DurationVar(&c.StreamingConnectionIdleTimeout.Duration, "streaming-connection-idle-timeout", c.StreamingConnectionIdleTimeout.Duration, field("streamingConnectionIdleTimeout"))
}

func addSourceFlags(fs *pflag.FlagSet, c *kubeletv1beta1.KubeletConfiguration) {
	fs.StringVar(&c.StaticPodPath, "pod-manifest-path", c.StaticPodPath, field("staticPodPath"))
	fs.StringVar(&c.StaticPodURL, "manifest-url", c.StaticPodURL, field("staticPodURL"))
	fs.Var(&headersValue{target: &c.StaticPodURLHeader}, "manifest-url-header", field("staticPodURLHeader"))
	fs.DurationVar(&c.SyncFrequency.Duration, "sync-frequency", c.SyncFrequency.Duration, field("syncFrequency"))
	fs.DurationVar(&c.FileCheckFrequency.Duration, "file-check-frequency", c.FileCheckFrequency.Duration, field("fileCheckFrequency"))
	fs.DurationVar(&c.HTTPCheckFrequency.Duration, "http-check-frequency", c.HTTPCheckFrequency.Duration, field("httpCheckFrequency"))
	fs.Int32Var(&c.MaxPods, "max-pods", c.MaxPods, field("maxPods"))
	fs.Int32Var(&c.PodsPerCore, "pods-per-core", c.PodsPerCore, field("podsPerCore"))
	fs.BoolVar(&c.RunOnce, "runonce", c.RunOnce, field("runOnce"))
	fs.StringSliceVar(&c.ClusterDNS, "cluster-dns", c.ClusterDNS, field("clusterDNS"))
	fs.StringVar(&c.ClusterDomain, "cluster-domain", c.ClusterDomain, field("clusterDomain"))
	fs.StringVar(c.ResolverConfig, "resolv-conf", *c.ResolverConfig, field("resolvConf"))
	fs.StringVar(&c.HairpinMode, "hairpin-mode", c.HairpinMode, field("hairpinMode"))
	fs.BoolVar(c.MakeIPTablesUtilChains, "make-iptables-util-chains", *c.MakeIPTablesUtilChains, field("makeIPTablesUtilChains"))
	fs.StringVar(&c.VolumePluginDir, "volume-plugin-dir", c.VolumePluginDir, field("volumePluginDir"))
	fs.DurationVar(&c.VolumeStatsAggPeriod.Duration, "volume-stats-agg-period", c.VolumeStatsAggPeriod.Duration, field("volumeStatsAggPeriod"))
	fs.BoolVar(c.EnableControllerAttachDetach, "enable-controller-attach-detach", *c.EnableControllerAttachDetach, field("enableControllerAttachDetach"))
}

func addImageFlags(fs *pflag.FlagSet, c *kubeletv1beta1.KubeletConfiguration) {
	fs.StringVar(&c.ContainerRuntimeEndpoint, "container-runtime-endpoint", c.ContainerRuntimeEndpoint, field("containerRuntimeEndpoint"))
	fs.StringVar(&c.ImageServiceEndpoint, "image-service-endpoint", c.ImageServiceEndpoint, field("imageServiceEndpoint"))
	fs.DurationVar(&c.RuntimeRequestTimeout.Duration, "runtime-request-timeout", c.RuntimeRequestTimeout.Duration, field("runtimeRequestTimeout"))
	fs.Int32Var(c.RegistryPullQPS, "registry-qps", *c.RegistryPullQPS, field("registryPullQPS"))
	fs.Int32Var(&c.RegistryBurst, "registry-burst", c.RegistryBurst, field("registryBurst"))
	fs.BoolVar(c.SerializeImagePulls, "serialize-image-pulls", *c.SerializeImagePulls, field("serializeImagePulls"))
	fs.DurationVar(&c.ImageMinimumGCAge.Duration, "minimum-image-ttl-duration", c.ImageMinimumGCAge.Duration, field("imageMinimumGCAge"))
	fs.Int32Var(c.ImageGCHighThresholdPercent, "image-gc-high-threshold", *c.ImageGCHighThresholdPercent, field("imageGCHighThresholdPercent"))
	fs.Int32Var(c.ImageGCLowThresholdPercent, "image-gc-low-threshold", *c.ImageGCLowThresholdPercent, field("imageGCLowThresholdPercent"))
	fs.StringVar(&c.ContainerLogMaxSize, "container-log-max-size", c.ContainerLogMaxSize, field("containerLogMaxSize"))
	fs.Int32Var(c.ContainerLogMaxFiles, "container-log-max-files", *c.ContainerLogMaxFiles, field("containerLogMaxFiles"))
	fs.BoolVar(c.SeccompDefault, "seccomp-default", *c.SeccompDefault, field("seccompDefault"))
	fs.StringSliceVar(&c.AllowedUnsafeSysctls, "allowed-unsafe-sysctls", c.AllowedUnsafeSysctls, field("allowedUnsafeSysctls"))
}

func addResourceFlags(fs *pflag.FlagSet, c *kubeletv1beta1.KubeletConfiguration) {
	fs.StringVar(&c.CgroupDriver, "cgroup-driver", c.CgroupDriver, field("cgroupDriver"))
	fs.StringVar(&c.CgroupRoot, "cgroup-root", c.CgroupRoot, field("cgroupRoot"))
	fs.BoolVar(c.CgroupsPerQOS, "cgroups-per-qos", *c.CgroupsPerQOS, field("cgroupsPerQOS"))
	fs.StringVar(&c.KubeletCgroups, "kubelet-cgroups", c.KubeletCgroups, field("kubeletCgroups"))
	fs.StringVar(&c.SystemCgroups, "system-cgroups", c.SystemCgroups, field("systemCgroups"))
	fs.Var(&mapValue{target: &c.KubeReserved, separator: "="}, "kube-reserved", field("kubeReserved"))
	fs.Var(&mapValue{target: &c.SystemReserved, separator: "="}, "system-reserved", field("systemReserved"))
	fs.StringVar(&c.KubeReservedCgroup, "kube-reserved-cgroup", c.KubeReservedCgroup, field("kubeReservedCgroup"))
	fs.StringVar(&c.SystemReservedCgroup, "system-reserved-cgroup", c.SystemReservedCgroup, field("systemReservedCgroup"))
	fs.StringSliceVar(&c.EnforceNodeAllocatable, "enforce-node-allocatable", c.EnforceNodeAllocatable, field("enforceNodeAllocatable"))
	fs.StringVar(&c.ReservedSystemCPUs, "reserved-cpus", c.ReservedSystemCPUs, field("reservedSystemCPUs"))
	fs.Var(&mapValue{target: &c.QOSReserved, separator: "="}, "qos-reserved", field("qosReserved"))
	fs.StringVar(&c.CPUManagerPolicy, "cpu-manager-policy", c.CPUManagerPolicy, field("cpuManagerPolicy"))
	fs.Var(&mapValue{target: &c.CPUManagerPolicyOptions, separator: "="}, "cpu-manager-policy-options", field("cpuManagerPolicyOptions"))
	fs.DurationVar(&c.CPUManagerReconcilePeriod.Duration, "cpu-manager-reconcile-period", c.CPUManagerReconcilePeriod.Duration, field("cpuManagerReconcilePeriod"))
	fs.StringVar(&c.MemoryManagerPolicy, "memory-manager-policy", c.MemoryManagerPolicy, field("memoryManagerPolicy"))
	fs.Var(reservedMemoryValue{&c.ReservedMemory}, "reserved-memory", field("reservedMemory"))
	fs.StringVar(&c.TopologyManagerPolicy, "topology-manager-policy", c.TopologyManagerPolicy, field("topologyManagerPolicy"))
	fs.StringVar(&c.TopologyManagerScope, "topology-manager-scope", c.TopologyManagerScope, field("topologyManagerScope"))
	fs.Var(&mapValue{target: &c.TopologyManagerPolicyOptions, separator: "="}, "topology-manager-policy-options", field("topologyManagerPolicyOptions"))
	fs.BoolVar(c.CPUCFSQuota, "cpu-cfs-quota", *c.CPUCFSQuota, field("cpuCFSQuota"))
	fs.DurationVar(&c.CPUCFSQuotaPeriod.Duration, "cpu-cfs-quota-period", c.CPUCFSQuotaPeriod.Duration, field("cpuCFSQuotaPeriod"))
	fs.Int64Var(c.PodPidsLimit, "pod-max-pids", *c.PodPidsLimit, field("podPidsLimit"))
	fs.BoolVar(c.FailSwapOn, "fail-swap-on", *c.FailSwapOn, field("failSwapOn"))
	fs.BoolVar(c.FailCgroupV1, "fail-cgroupv1", *c.FailCgroupV1, field("failCgroupV1"))
	fs.BoolVar(&c.ProtectKernelDefaults, "protect-kernel-defaults", c.ProtectKernelDefaults, field("protectKernelDefaults"))
	fs.Int32Var(c.OOMScoreAdj, "oom-score-adj", *c.OOMScoreAdj, field("oomScoreAdj"))
	fs.Int64Var(&c.MaxOpenFiles, "max-open-files", c.MaxOpenFiles, field("maxOpenFiles"))
	fs.BoolVar(c.LocalStorageCapacityIsolation, "local-storage-capacity-isolation", *c.LocalStorageCapacityIsolation, field("localStorageCapacityIsolation"))
}

func addEvictionFlags(fs *pflag.FlagSet, c *kubeletv1beta1.KubeletConfiguration) {
	fs.Var(&mapValue{target: &c.EvictionHard, separator: "<"}, "eviction-hard", field("evictionHard"))
	fs.Var(&mapValue{target: &c.EvictionSoft, separator: "<"}, "eviction-soft", field("evictionSoft"))
	fs.Var(&mapValue{target: &c.EvictionSoftGracePeriod, separator: "="}, "eviction-soft-grace-period", field("evictionSoftGracePeriod"))
	fs.Var(&mapValue{target: &c.EvictionMinimumReclaim, separator: "="}, "eviction-minimum-reclaim", field("evictionMinimumReclaim"))
	fs.DurationVar(&c.EvictionPressureTransitionPeriod.Duration, "eviction-pressure-transition-period", c.EvictionPressureTransitionPeriod.Duration, field("evictionPressureTransitionPeriod"))
	fs.Int32Var(&c.EvictionMaxPodGracePeriod, "eviction-max-pod-grace-period", c.EvictionMaxPodGracePeriod, field("evictionMaxPodGracePeriod"))
	fs.BoolVar(&c.KernelMemcgNotification, "kernel-memcg-notification", c.KernelMemcgNotification, field("kernelMemcgNotification"))
}

// addIgnoredFlags takes what old command lines still pass and nothing uses.
func addIgnoredFlags(fs *pflag.FlagSet) {
	for _, name := range ignoredTexts() {
		fs.String(name, "", "Ignored.")
		fs.Lookup(name).Hidden = true
	}
	for _, name := range ignoredSwitches() {
		fs.Bool(name, false, "Ignored.")
		fs.Lookup(name).Hidden = true
	}
}

// ignoredTexts are the flags with a value that nothing uses.
func ignoredTexts() []string {
	return []string{
		"application-metrics-count-limit", "boot-id-file", "container-hints", "containerd",
		"containerd-namespace", "event-storage-age-limit", "event-storage-event-limit",
		"global-housekeeping-interval", "machine-id-file", "storage-driver-user", "storage-driver-password",
		"storage-driver-host", "storage-driver-db", "storage-driver-table", "storage-driver-buffer-duration",
		"experimental-mounter-path",
	}
}

// ignoredSwitches are the flags for true and false that nothing uses.
func ignoredSwitches() []string {
	return []string{"enable-load-reader", "log-cadvisor-usage", "storage-driver-secure", "experimental-allocatable-ignore-eviction"}
}

// removedFlags are flags that Kubernetes has dropped, with what to do instead.
func removedFlags() map[string]string {
	const runtime = "remove it: the runtime is always remote, see containerRuntimeEndpoint"
	const cni = "remove it: the runtime configures CNI"
	return map[string]string{
		"container-runtime":                                 runtime,
		"pod-infra-container-image":                         "remove it: the sandbox image is the runtime's setting (containerd: sandbox_image or pinned_images)",
		"network-plugin":                                    cni,
		"network-plugin-mtu":                                cni,
		"cni-bin-dir":                                       cni,
		"cni-conf-dir":                                      cni,
		"cni-cache-dir":                                     cni,
		"cloud-config":                                      "remove it: use --cloud-provider=external with a cloud controller manager",
		"keep-terminated-pod-volumes":                       "remove it: volumes of terminated pods always go",
		"register-schedulable":                              "use --register-with-taints",
		"really-crash-for-testing":                          "remove it",
		"cadvisor-port":                                     "remove it: use /metrics/cadvisor",
		"iptables-masquerade-bit":                           "remove it: it has no effect",
		"iptables-drop-bit":                                 "remove it: it has no effect",
		"experimental-bootstrap-kubeconfig":                 "use --bootstrap-kubeconfig",
		"experimental-kernel-memcg-notification":            "use --kernel-memcg-notification",
		"experimental-check-node-capabilities-before-mount": "remove it",
		"docker-endpoint":                                   runtime,
		"image-pull-progress-deadline":                      runtime,
	}
}
