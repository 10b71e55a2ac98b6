package kubeletconfig

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
)

// host is what validation has to know of the machine.
type host struct {
	// unified says that cgroups are of version 2.
	unified bool
	// online are the processors; empty is not known.
	online cpuset.CPUSet
}

// onlineFile lists the processors that can be used.
const onlineFile = "/sys/devices/system/cpu/online"

// thisHost looks at the machine.
func thisHost() host {
	out := host{unified: cgroupV2()}
	if raw, err := os.ReadFile(onlineFile); err == nil {
		out.online, _ = cpuset.Parse(strings.TrimSpace(string(raw))) // what cannot be read is not known
	}
	return out
}

// What a list of processors is not: each one in it is counted, and some bytes would say
// billions.
const mostOfProcessors = 4 << 10

var noProcessor = regexp.MustCompile(`[0-9]{5}`)

// validateHost checks what depends on the machine.
func validateHost(p *problems, c *kubeletv1beta1.KubeletConfiguration, h host) {
	p.add(h.unified || *c.SingleProcessOOMKill, "singleProcessOOMKill", *c.SingleProcessOOMKill, "it must not be explicitly set to false when using cgroup v1: remove it")
	p.add(h.unified || c.MemorySwap.SwapBehavior != "LimitedSwap", "memorySwap.swapBehavior", c.MemorySwap.SwapBehavior, "LimitedSwap is only supported with cgroup v2: set NoSwap")
	if c.ReservedSystemCPUs == "" {
		return
	}
	if len(c.ReservedSystemCPUs) > mostOfProcessors || noProcessor.MatchString(c.ReservedSystemCPUs) {
		p.add(false, "reservedSystemCPUs", fmt.Sprintf("%.40s", c.ReservedSystemCPUs), "a list of processors, e.g. 0-1,4, of which no machine has 10000")
		return
	}
	reserved, err := cpuset.Parse(c.ReservedSystemCPUs)
	p.add(err == nil, "reservedSystemCPUs", c.ReservedSystemCPUs, "a list of processors, e.g. 0-1,4")
	p.add(err != nil || h.online.IsEmpty() || reserved.IsSubsetOf(h.online), "reservedSystemCPUs", c.ReservedSystemCPUs,
		"it is not a subset of the online processors, "+h.online.String())
}

// validateSysctls checks which sysctls pods may set besides the safe ones: they are names and
// beginnings of names that the kernel has for each network or IPC namespace by itself. Any other
// would be set for the whole machine.
// Source: https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/
func validateSysctls(p *problems, c *kubeletv1beta1.KubeletConfiguration) {
	for i, pattern := range c.AllowedUnsafeSysctls {
		field := fmt.Sprintf("allowedUnsafeSysctls[%d]", i)
		if len(pattern) > longestSysctl || !sysctlPattern.MatchString(pattern) {
			p.add(false, field, fmt.Sprintf("%.300s", pattern), fmt.Sprintf("a sysctl of at most %d characters, or the beginning of some and *, e.g. net.core.*", longestSysctl))
			continue
		}
		p.add(namespacedSysctl(pattern), field, pattern, "net.*, fs.mqueue.*, kernel.sem, kernel.shm* or kernel.msg*: any other is not known to be namespaced")
	}
}

const longestSysctl = 253

var (
	sysctlPattern = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]$`)
	ofIPC         = []string{
		"kernel.sem", "kernel.shm", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
		"kernel.msg", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni",
	}
)

// namespacedSysctl says whether a name, or what is before its *, is of a namespace. Where a
// slash comes first, slashes part a name and dots belong to it.
func namespacedSysctl(pattern string) bool {
	name, _, _ := strings.Cut(pattern, "*")
	if at := strings.IndexAny(name, "./"); at >= 0 && name[at] == '/' {
		name = strings.NewReplacer("/", ".", ".", "/").Replace(name)
	}
	return strings.HasPrefix(name, "net.") || strings.HasPrefix(name, "fs.mqueue.") || slices.Contains(ofIPC, name)
}

// validateGates checks fields whose feature gate is off.
func validateGates(p *problems, c *kubeletv1beta1.KubeletConfiguration, gates map[string]bool) {
	needs := func(gate string, set bool, field string, value any) {
		p.add(gates[gate] || !set, field, value, "it requires the feature gate "+gate)
	}
	period := c.CPUCFSQuotaPeriod.Duration
	needs("CustomCPUCFSQuotaPeriod", period != 100*time.Millisecond, "cpuCFSQuotaPeriod", period.String())
	needs("RotateKubeletServerCertificate", c.ServerTLSBootstrap, "serverTLSBootstrap", c.ServerTLSBootstrap)
	needs("GracefulNodeShutdown", c.ShutdownGracePeriod.Duration > 0, "shutdownGracePeriod", c.ShutdownGracePeriod.Duration.String())
	needs("GracefulNodeShutdown", c.ShutdownGracePeriodCriticalPods.Duration > 0, "shutdownGracePeriodCriticalPods", c.ShutdownGracePeriodCriticalPods.Duration.String())
	needs("GracefulNodeShutdownBasedOnPodPriority", len(c.ShutdownGracePeriodByPodPriority) > 0, "shutdownGracePeriodByPodPriority", len(c.ShutdownGracePeriodByPodPriority))
	needs("MemoryQoS", c.MemoryReservationPolicy == kubeletv1beta1.TieredReservationMemoryReservationPolicy, "memoryReservationPolicy", string(c.MemoryReservationPolicy))
}
