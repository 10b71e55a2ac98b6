package kubeletconfig

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	fieldpath "k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/threshold"
)

// problems collects what is wrong: field, value, mend.
type problems []error

func (p *problems) add(ok bool, name string, value any, mend string) {
	if !ok {
		*p = append(*p, fmt.Errorf("%s: invalid value %#v: %s", name, value, mend))
	}
}

func validate(c *kubeletv1beta1.KubeletConfiguration, gates map[string]bool, h host) error {
	var p problems
	validateServing(&p, c)
	validateSources(&p, c)
	validateImages(&p, c)
	validateResources(&p, c)
	validateEviction(&p, c)
	validateNode(&p, c)
	validateManagers(&p, c, gates)
	validateQOSReserved(&p, c)
	validateGates(&p, c, gates)
	validateHost(&p, c, h)
	validateSysctls(&p, c)
	return errors.Join(p...)
}

func validateServing(p *problems, c *kubeletv1beta1.KubeletConfiguration) {
	p.add(isIP(c.Address), "address", c.Address, "an IP address, e.g. 0.0.0.0")
	p.add(isIP(c.HealthzBindAddress), "healthzBindAddress", c.HealthzBindAddress, "an IP address, e.g. 127.0.0.1")
	p.add(c.Port >= 1 && c.Port <= 65535, "port", c.Port, "1 to 65535")
	p.add(c.ReadOnlyPort >= 0 && c.ReadOnlyPort <= 65535, "readOnlyPort", c.ReadOnlyPort, "0 (off) or 1 to 65535")
	p.add(*c.HealthzPort >= 0 && *c.HealthzPort <= 65535, "healthzPort", *c.HealthzPort, "0 (off) or 1 to 65535")
	p.add(oneOf(c.TLSMinVersion, "", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"),
		"tlsMinVersion", c.TLSMinVersion, "VersionTLS10 to VersionTLS13")
	p.add((c.TLSCertFile == "") == (c.TLSPrivateKeyFile == ""), "tlsCertFile", c.TLSCertFile, "set it together with tlsPrivateKeyFile, or neither")
	p.add(oneOf(c.Authorization.Mode, kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow, kubeletv1beta1.KubeletAuthorizationModeWebhook),
		"authorization.mode", string(c.Authorization.Mode), "AlwaysAllow or Webhook")
	p.add(oneOf(c.Logging.Format, "text", "json"), "logging.format", c.Logging.Format, "text or json")
	p.add(c.Logging.FlushFrequency.Duration.Duration > 0, "logging.flushFrequency", c.Logging.FlushFrequency.Duration.Duration.String(), "more than 0")
	p.add(oneOf(c.ShowHiddenMetricsForVersion, "", previousRelease()), "showHiddenMetricsForVersion", c.ShowHiddenMetricsForVersion, "leave it out, or "+previousRelease())
	_, err := cliflag.TLSCipherSuites(c.TLSCipherSuites)
	p.add(err == nil, "tlsCipherSuites", c.TLSCipherSuites, "names of cipher suites, e.g. TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
	_, err = cliflag.TLSCurvePreferences(c.TLSCurvePreferences)
	p.add(err == nil, "tlsCurvePreferences", c.TLSCurvePreferences, fmt.Sprint(err))
	for _, wrong := range tracingapi.ValidateTracingConfiguration(c.Tracing, nil, fieldpath.NewPath("tracing")) {
		p.add(false, wrong.Field, wrong.BadValue, wrong.Detail)
	}
	p.add(c.Logging.Verbosity <= math.MaxInt32, "logging.verbosity", uint32(c.Logging.Verbosity), "0 to 2147483647")
	p.add(!*c.EnableSystemLogQuery || *c.EnableSystemLogHandler, "enableSystemLogQuery", *c.EnableSystemLogQuery, "enableSystemLogHandler must be true too")
}

func validateSources(p *problems, c *kubeletv1beta1.KubeletConfiguration) {
	p.add(c.SyncFrequency.Duration > 0, "syncFrequency", c.SyncFrequency.Duration.String(), "more than 0")
	p.add(!c.RunOnce, "runOnce", c.RunOnce, "false: run-once mode was removed from Kubernetes")
	p.add(c.MaxPods >= 0, "maxPods", c.MaxPods, "0 or more")
	p.add(c.PodsPerCore >= 0, "podsPerCore", c.PodsPerCore, "0 or more")
	p.add(filepath.IsAbs(c.PodLogsDir) && filepath.Clean(c.PodLogsDir) == c.PodLogsDir && isASCII(c.PodLogsDir),
		"podLogsDir", c.PodLogsDir, "an absolute, normalized path of ASCII characters")
	p.add(oneOf(c.ConfigMapAndSecretChangeDetectionStrategy, kubeletv1beta1.GetChangeDetectionStrategy,
		kubeletv1beta1.TTLCacheChangeDetectionStrategy, kubeletv1beta1.WatchChangeDetectionStrategy),
		"configMapAndSecretChangeDetectionStrategy", string(c.ConfigMapAndSecretChangeDetectionStrategy), "Get, Cache or Watch")
	restart := c.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	p.add(restart >= time.Second && restart <= 5*time.Minute, "crashLoopBackOff.maxContainerRestartPeriod", restart.String(), "1s to 300s")
	p.add(oneOf(c.HairpinMode, kubeletv1beta1.HairpinNone, kubeletv1beta1.HairpinVeth, kubeletv1beta1.PromiscuousBridge),
		"hairpinMode", c.HairpinMode, "none, hairpin-veth or promiscuous-bridge")
	for _, bit := range []struct {
		name  string
		value int32
	}{{"iptablesMasqueradeBit", *c.IPTablesMasqueradeBit}, {"iptablesDropBit", *c.IPTablesDropBit}} {
		p.add(bit.value >= 0 && bit.value <= 31, bit.name, bit.value, "0 to 31")
	}
	for i, taint := range c.RegisterWithTaints {
		for _, wrong := range slices.Concat(validation.IsQualifiedName(taint.Key), validation.IsValidLabelValue(taint.Value)) {
			p.add(false, fmt.Sprintf("registerWithTaints[%d]", i), taint.ToString(), wrong)
		}
		p.add(oneOf(taint.Effect, "", v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute),
			fmt.Sprintf("registerWithTaints[%d].effect", i), string(taint.Effect), "NoSchedule, PreferNoSchedule or NoExecute")
		p.add(taint.TimeAdded == nil, fmt.Sprintf("registerWithTaints[%d].timeAdded", i), taint.TimeAdded, "leave it out: the control plane sets it")
	}
}

func validateImages(p *problems, c *kubeletv1beta1.KubeletConfiguration) {
	p.add(c.ContainerRuntimeEndpoint != "", "containerRuntimeEndpoint", c.ContainerRuntimeEndpoint, "the runtime's socket, e.g. unix:///run/containerd/containerd.sock")
	p.add(*c.RegistryPullQPS >= 0, "registryPullQPS", *c.RegistryPullQPS, "0 (no limit) or more")
	p.add(c.RegistryBurst >= 0, "registryBurst", c.RegistryBurst, "0 or more")
	if n := c.MaxParallelImagePulls; n != nil {
		p.add(*n >= 1, "maxParallelImagePulls", *n, "1 or more")
		p.add(*n <= 1 || !*c.SerializeImagePulls, "maxParallelImagePulls", *n, "set serializeImagePulls to false, or this to 1")
	}
	validateVerification(p, c)
	high, low := *c.ImageGCHighThresholdPercent, *c.ImageGCLowThresholdPercent
	p.add(high >= 0 && high <= 100, "imageGCHighThresholdPercent", high, "0 to 100")
	p.add(low >= 0 && low <= 100 && low < high, "imageGCLowThresholdPercent", low, "0 to 100, and less than imageGCHighThresholdPercent")
	p.add(c.ImageMinimumGCAge.Duration >= 0, "imageMinimumGCAge", c.ImageMinimumGCAge.Duration.String(), "0 or more")
	maxAge := c.ImageMaximumGCAge.Duration
	p.add(maxAge == 0 || maxAge > c.ImageMinimumGCAge.Duration, "imageMaximumGCAge", maxAge.String(), "0 (off) or more than imageMinimumGCAge")
	p.add(*c.NodeStatusMaxImages >= -1, "nodeStatusMaxImages", *c.NodeStatusMaxImages, "-1 (all) or more")
	_, err := resource.ParseQuantity(c.ContainerLogMaxSize)
	p.add(err == nil, "containerLogMaxSize", c.ContainerLogMaxSize, "a quantity, e.g. 10Mi")
	p.add(*c.ContainerLogMaxFiles > 1, "containerLogMaxFiles", *c.ContainerLogMaxFiles, "2 or more")
	p.add(*c.ContainerLogMaxWorkers >= 1, "containerLogMaxWorkers", *c.ContainerLogMaxWorkers, "1 or more")
	interval := c.ContainerLogMonitorInterval.Duration
	p.add(interval >= 3*time.Second, "containerLogMonitorInterval", interval.String(), "3s or more")
	ids := *c.UserNamespaces.IDsPerPod
	p.add(ids >= 65536 && ids%65536 == 0 && ids <= 1<<32-1, "userNamespaces.idsPerPod", ids, "a multiple of 65536 below 2^32")
}

// validateVerification checks who may use images that are present.
// Source: the documentation of the two fields.
func validateVerification(p *problems, c *kubeletv1beta1.KubeletConfiguration) {
	policy := c.ImagePullCredentialsVerificationPolicy
	listed := policy == kubeletv1beta1.NeverVerifyAllowlistedImages
	p.add(listed || oneOf(string(policy), string(kubeletv1beta1.NeverVerify), string(kubeletv1beta1.NeverVerifyPreloadedImages), string(kubeletv1beta1.AlwaysVerify)),
		"imagePullCredentialsVerificationPolicy", policy, "NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify")
	list := c.PreloadedImagesVerificationAllowlist
	p.add(listed || len(list) == 0, "preloadedImagesVerificationAllowlist", list, "set imagePullCredentialsVerificationPolicy to NeverVerifyAllowlistedImages, or remove it")
	for i, pattern := range list {
		field := fmt.Sprintf("preloadedImagesVerificationAllowlist[%d]", i)
		p.add(allowlistable(pattern), field, pattern, `an image's name without tag or digest, or a part of it that ends in "/*"`)
	}
}

// allowlistable says whether a pattern can match an image's name: a colon is a
// port's, so only in front of a slash, and a star only after the last one.
func allowlistable(pattern string) bool {
	name, below := strings.CutSuffix(pattern, "/*")
	last := name[strings.LastIndex(name, "/")+1:]
	if strings.Contains(last, ":") && (!below || last != name) {
		return false
	}
	return name != "" && last != "" && !strings.HasPrefix(name, "/") && !strings.ContainsAny(name, "@* \t")
}

func validateResources(p *problems, c *kubeletv1beta1.KubeletConfiguration) {
	p.add(oneOf(c.CgroupDriver, "cgroupfs", "systemd"), "cgroupDriver", c.CgroupDriver, "cgroupfs or systemd, the same as the runtime's")
	period := c.CPUCFSQuotaPeriod.Duration
	p.add(period >= time.Millisecond && period <= time.Second, "cpuCFSQuotaPeriod", period.String(), "1ms to 1s")
	p.add(c.SystemCgroups == "" || path.Join("/", c.SystemCgroups) != "/", "systemCgroups", c.SystemCgroups, "a cgroup below the root")
	p.add(c.SystemCgroups == "" || c.CgroupRoot != "", "systemCgroups", c.SystemCgroups, "cgroupRoot must be set too")
	for name, reserved := range map[string]map[string]string{"kubeReserved": c.KubeReserved, "systemReserved": c.SystemReserved} {
		for key, amount := range reserved {
			p.add(oneOf(key, "cpu", "memory", "ephemeral-storage", "pid"), name, key, "cpu, memory, ephemeral-storage or pid")
			quantity, err := resource.ParseQuantity(amount)
			p.add(err == nil && quantity.Sign() >= 0, name+"."+key, amount, "a quantity of 0 or more")
		}
	}
	validateEnforced(p, c)
	p.add(c.MemorySwap.SwapBehavior == "" || oneOf(c.MemorySwap.SwapBehavior, "NoSwap", "LimitedSwap"),
		"memorySwap.swapBehavior", c.MemorySwap.SwapBehavior, "NoSwap or LimitedSwap")
	p.add(*c.OOMScoreAdj >= -1000 && *c.OOMScoreAdj <= 1000, "oomScoreAdj", *c.OOMScoreAdj, "-1000 to 1000")
	p.add(c.MaxOpenFiles >= 0, "maxOpenFiles", c.MaxOpenFiles, "0 or more")
	factor := *c.MemoryThrottlingFactor
	p.add(factor > 0 && factor <= 1, "memoryThrottlingFactor", factor, "more than 0 and at most 1")
	p.add(oneOf(c.MemoryReservationPolicy, kubeletv1beta1.NoneMemoryReservationPolicy, kubeletv1beta1.TieredReservationMemoryReservationPolicy),
		"memoryReservationPolicy", string(c.MemoryReservationPolicy), "None or TieredReservation")
}

func validateEnforced(p *problems, c *kubeletv1beta1.KubeletConfiguration) {
	known := []string{"none", "pods", "system-reserved", "kube-reserved", "system-reserved-compressible", "kube-reserved-compressible"}
	seen := map[string]bool{}
	for _, item := range c.EnforceNodeAllocatable {
		p.add(slices.Contains(known, item), "enforceNodeAllocatable", item, strings.Join(known, ", "))
		p.add(!seen[item], "enforceNodeAllocatable", item, "name it once")
		seen[item] = true
	}
	p.add(!seen["none"] || len(c.EnforceNodeAllocatable) == 1, "enforceNodeAllocatable", c.EnforceNodeAllocatable, "none stands alone")
	for _, kind := range []string{"system-reserved", "kube-reserved"} {
		p.add(!seen[kind] || !seen[kind+"-compressible"], "enforceNodeAllocatable", c.EnforceNodeAllocatable, kind+" or "+kind+"-compressible, not both")
	}
	p.add(c.ReservedSystemCPUs == "" || c.SystemReservedCgroup == "" && c.KubeReservedCgroup == "",
		"reservedSystemCPUs", c.ReservedSystemCPUs, "set without systemReservedCgroup and kubeReservedCgroup")
	enforcing := len(seen) > 0 && !seen["none"]
	p.add(!enforcing || *c.CgroupsPerQOS, "cgroupsPerQOS", *c.CgroupsPerQOS, "true, or enforceNodeAllocatable: [none]")
	p.add(!(seen["system-reserved"] || seen["system-reserved-compressible"]) || c.SystemReservedCgroup != "",
		"systemReservedCgroup", c.SystemReservedCgroup, "name the cgroup, since system-reserved is enforced")
	p.add(!(seen["kube-reserved"] || seen["kube-reserved-compressible"]) || c.KubeReservedCgroup != "",
		"kubeReservedCgroup", c.KubeReservedCgroup, "name the cgroup, since kube-reserved is enforced")
}

// validateEviction has the thresholds read as nodestatus reads them.
func validateEviction(p *problems, c *kubeletv1beta1.KubeletConfiguration) {
	_, err := threshold.Parse(threshold.Settings{
		Hard: c.EvictionHard, Soft: c.EvictionSoft, SoftGrace: c.EvictionSoftGracePeriod, MinimumReclaim: c.EvictionMinimumReclaim,
	})
	if err != nil {
		*p = append(*p, err)
	}
}

// previousRelease is the one whose hidden metrics may be asked for.
func previousRelease() string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(buildinfo.KubernetesVersion, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, _ := strconv.Atoi(minor) // a release has one
	return fmt.Sprintf("%s.%d", major, n-1)
}

func validateNode(p *problems, c *kubeletv1beta1.KubeletConfiguration) {
	p.add(*c.KubeAPIQPS >= 0, "kubeAPIQPS", *c.KubeAPIQPS, "0 or more")
	p.add(c.KubeAPIBurst >= 0, "kubeAPIBurst", c.KubeAPIBurst, "0 or more")
	p.add(*c.EventRecordQPS >= 0, "eventRecordQPS", *c.EventRecordQPS, "0 or more")
	p.add(c.EventBurst >= 0, "eventBurst", c.EventBurst, "0 or more")
	update, report := c.NodeStatusUpdateFrequency.Duration, c.NodeStatusReportFrequency.Duration
	p.add(update > 0, "nodeStatusUpdateFrequency", update.String(), "more than 0")
	p.add(report > 0, "nodeStatusReportFrequency", report.String(), "more than 0")
	p.add(c.NodeLeaseDurationSeconds > 0, "nodeLeaseDurationSeconds", c.NodeLeaseDurationSeconds, "more than 0")
	total, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	p.add(total == 0 || total >= time.Second, "shutdownGracePeriod", total.String(), "0 (off) or at least 1s")
	p.add(critical == 0 || critical >= time.Second, "shutdownGracePeriodCriticalPods", critical.String(), "0 or at least 1s")
	p.add(critical <= total, "shutdownGracePeriodCriticalPods", critical.String(), "at most shutdownGracePeriod")
	p.add(len(c.ShutdownGracePeriodByPodPriority) == 0 || total == 0 && critical == 0,
		"shutdownGracePeriodByPodPriority", len(c.ShutdownGracePeriodByPodPriority), "leave it out, or both shutdownGracePeriod fields")
	for i, period := range c.ShutdownGracePeriodByPodPriority {
		p.add(period.ShutdownGracePeriodSeconds >= 0, fmt.Sprintf("shutdownGracePeriodByPodPriority[%d].shutdownGracePeriodSeconds", i), period.ShutdownGracePeriodSeconds, "0 or more")
	}
}

func validateFlags(f *Flags) error {
	var p problems
	p.add(filepath.IsAbs(f.RootDir) && filepath.Clean(f.RootDir) == f.RootDir, "--root-dir", f.RootDir, "an absolute, normalized path")
	p.add(filepath.IsAbs(f.SocketDir) && filepath.Clean(f.SocketDir) == f.SocketDir, "--socket-dir", f.SocketDir, "an absolute, normalized path")
	p.add(f.DynamicConfigDir == "" || filepath.IsAbs(f.DynamicConfigDir) && filepath.Clean(f.DynamicConfigDir) == f.DynamicConfigDir, "--dynamic-config-dir", f.DynamicConfigDir, "an absolute, normalized path")
	p.add(len(f.SocketDir) <= 80, "--socket-dir", f.SocketDir, "at most 80 characters: a socket's path may have 107")
	p.add((f.CredentialProviderConfig == "") == (f.CredentialProviderBinDir == ""), "--image-credential-provider-config", f.CredentialProviderConfig,
		"set it together with --image-credential-provider-bin-dir, or neither")
	p.add(oneOf(f.CloudProvider, "", "external"), "--cloud-provider", f.CloudProvider, "empty or external")
	p.add(f.NodeIP == "" || validNodeIP(f.NodeIP), "--node-ip", f.NodeIP, "an IP address, or an IPv4 and an IPv6 address with a comma between")
	p.add(f.NodePageAddress == "" || validHostPort(f.NodePageAddress), "--node-page-address", f.NodePageAddress, "host:port, e.g. 127.0.0.1:4194, or empty")
	for key, val := range f.NodeLabels {
		validateLabel(&p, key, val)
	}
	return errors.Join(p...)
}

func validHostPort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func validateLabel(p *problems, key, val string) {
	for _, msg := range validation.IsQualifiedName(key) {
		p.add(false, "--node-labels", key, msg)
	}
	for _, msg := range validation.IsValidLabelValue(val) {
		p.add(false, "--node-labels", val, msg)
	}
	prefix, _, found := strings.Cut(key, "/")
	if !found || !(hasDomain(prefix, "kubernetes.io") || hasDomain(prefix, "k8s.io")) {
		return
	}
	allowed := hasDomain(prefix, "kubelet.kubernetes.io") || hasDomain(prefix, "node.kubernetes.io") || slices.Contains([]string{
		"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch",
		"beta.kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type",
		"topology.kubernetes.io/zone", "topology.kubernetes.io/region",
		"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
		"failure-domain.kubernetes.io/zone", "failure-domain.kubernetes.io/region",
	}, key)
	p.add(allowed, "--node-labels", key, "a node may not set this kubernetes.io label on itself; allowed are kubelet.kubernetes.io/*, node.kubernetes.io/*, hostname, os, arch, zone and region")
}

func hasDomain(prefix, domain string) bool {
	return prefix == domain || strings.HasSuffix(prefix, "."+domain)
}

func validNodeIP(text string) bool {
	parts := strings.Split(text, ",")
	if len(parts) == 1 {
		return isIP(parts[0])
	}
	if len(parts) != 2 || !isIP(parts[0]) || !isIP(parts[1]) {
		return false
	}
	a, b := netip.MustParseAddr(strings.TrimSpace(parts[0])), netip.MustParseAddr(strings.TrimSpace(parts[1]))
	return a.Is4() != b.Is4()
}

func isIP(text string) bool {
	_, err := netip.ParseAddr(strings.TrimSpace(text))
	return err == nil
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r > 127 })
}

func oneOf[T comparable](v T, allowed ...T) bool { return slices.Contains(allowed, v) }
