package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	agentPolylet = "polylet"
	agentKubelet = "kubelet"
)

// group is a part of the suite that one start of the agent can run.
type group struct {
	name, about string
	// files are regular expressions of the tests' source files, and focus and
	// skip of their names. A test runs when one of the files, one of the focus
	// (if any) and none of skip matches.
	files, focus, skip []string
	// procs is how many tests run at once.
	procs   int
	timeout time.Duration
	// flags are the suite's, kubelet the agent's.
	flags, kubelet []string
	// disk is the size in bytes of a disk of the group's own, for those that fill it.
	disk int64
	// swap is how much of that in bytes a machine of the group's own has.
	swap int64
	// logind gives the group a logind, on a bus of its own.
	logind bool
	// lift has the least quotas of a processor lifted in a machine: see liftQuotas.
	lift bool
	// later is why the group runs only when it is asked for by name.
	later string
}

// What only a group of its own can run, and so every other leaves out: it needs
// another start of the agent, or a feature that has a group.
const (
	otherStarts   = `\[Feature:(CriProxy|StandaloneMode|LockContention)\]`
	otherFeatures = `\[Feature:(DevicePlugin|DeviceManager|DynamicResourceAllocation|CPUManager|MemoryManager|TopologyManager|PodResourcesAPI|HugePages|Eviction|GracefulNodeShutdown|NodeProblemDetector|Swap|UserNamespacesSupport|LSCIQuotaMonitoring|KubeletSeparateDiskGC|CheckpointContainer|KubeletCredentialProviders)\]|\[DRA\]`
	otherTests    = `Device Plugin Failures|Ensure Credential Pulled Images|ImageGarbageCollect|Kubelet Pods API|Probe Stress|should recover from ip leak|Density|Resource-usage|Node Performance Testing`
	// alone are tests that nothing may run beside.
	alone = `\[(Serial|Slow|Disruptive)\]`
)

var usual = []string{`\[Flaky\]`, otherStarts, otherFeatures, otherTests}

func ownFiles(names ...string) []string {
	var files []string
	for _, name := range names {
		files = append(files, `test/e2e_node/`+name+`\.go`)
	}
	return files
}

// groups are in the order in which they run.
var groups = []group{
	{
		name: "par", about: "the suite's own tests that can run beside each other",
		files: []string{`test/e2e_node/`}, skip: append([]string{alone}, usual...), procs: 4, timeout: 90 * time.Minute,
	},
	{
		name: "common", about: "tests of test/e2e/common that no conformance asks for",
		files: []string{`test/e2e/common/`}, skip: append([]string{alone, `\[(Node)?Conformance\]`}, usual...), procs: 4, timeout: 90 * time.Minute,
	},
	{
		name: "conformance", about: "tests of test/e2e/common of Conformance and NodeConformance",
		files: []string{`test/e2e/common/`}, focus: []string{`\[(Node)?Conformance\]`}, skip: append([]string{alone}, usual...),
		procs: 4, timeout: 90 * time.Minute,
	},
	{
		name: "restart", about: "restarts of the agent and of the node, static pods, configuration",
		files: ownFiles("container_lifecycle_test", "pod_status_test", "mirror_pod_test", "static_pod_test", "unknown_pods_test", "kubelet_config_dir_test",
			"kubelet_tls_test", "kubelet_server_tls_test", "endpoints_test", "os_label_rename_test", "restart_all_containers_test", "restart_test", "volume_manager_test"),
		focus: []string{`\[Serial\]`}, skip: usual, procs: 1, timeout: 2 * time.Hour,
	},
	{
		name: "serial", about: "garbage collection, out-of-memory kills, process limits, seccomp, critical pods, log rotation, registry, cgroups",
		files: ownFiles("garbage_collector_test", "oomkiller_linux_test", "pids_test", "seccompdefault_test", "critical_pod_test", "container_log_rotation_test",
			"container_manager_test", "node_container_manager_test", "runtime_conformance_test", "memory_qos_test", "pod_conditions_test", "summary_test"),
		skip: usual, focus: []string{`\[(Serial|Slow|Disruptive)\]`}, procs: 1, timeout: 2 * time.Hour,
	},
	{
		name: "alone", about: "tests of test/e2e/common that nothing may run beside",
		files: []string{`test/e2e/common/`}, focus: []string{`\[(Serial|Disruptive)\]`}, skip: usual, procs: 1, timeout: time.Hour, lift: true,
	},
	{
		name: "slow", about: "tests of test/e2e/common that take five minutes and more each",
		files: []string{`test/e2e/common/`}, focus: []string{`\[Slow\]`}, skip: append([]string{`\[(Serial|Disruptive)\]`}, usual...),
		procs: 6, timeout: 90 * time.Minute,
	},
	{
		name: "imagegc", about: "garbage collection of images",
		files: ownFiles("image_gc_test"), procs: 1, timeout: 30 * time.Minute,
	},
	{
		name: "credentials", about: "images that were pulled with credentials",
		files: ownFiles("image_credential_pulls"), procs: 1, timeout: 40 * time.Minute,
	},
	{
		name: "criproxy", about: "errors and delays between agent and runtime",
		files: []string{`test/e2e_node/`}, focus: []string{`\[Feature:CriProxy\]`}, procs: 1, timeout: time.Hour,
		flags: []string{"--cri-proxy-enabled=true"},
	},
	{
		name: "standalone", about: "an agent without an apiserver",
		files: ownFiles("standalone_test"), procs: 1, timeout: 40 * time.Minute, flags: []string{"--standalone-mode=true"},
	},
	{
		name: "lock", about: "two agents on one node", files: ownFiles("lock_contention_linux_test"), procs: 1, timeout: 20 * time.Minute,
		flags:   []string{"--restart-kubelet=true"},
		kubelet: []string{"--exit-on-lock-contention", "--lock-file=/var/run/kubelet.lock"},
	},
	{
		name: "leak", about: "containerd killed six times under 100 pods", files: ownFiles("restart_test"),
		focus: []string{`should recover from ip leak`}, procs: 1, timeout: 40 * time.Minute,
	},
	{name: "stress", about: "many probes", files: ownFiles("probe_stress_test"), procs: 1, timeout: time.Hour},
	{name: "podsapi", about: "the node's own Pods API", files: ownFiles("pods_api_test"), procs: 1, timeout: 30 * time.Minute},
	{
		name: "userns", about: "user namespaces", files: []string{`test/e2e_node/`, `test/e2e/common/`},
		focus: []string{`\[Feature:UserNamespacesSupport\]`}, skip: []string{`\[Flaky\]`}, procs: 1, timeout: time.Hour,
	},
	{
		name: "hugepages", about: "huge pages", files: ownFiles("hugepages_test"), procs: 1, timeout: time.Hour,
		later: "nothing is missing, but it changes how many huge pages the machine has",
	},
	{
		name: "devices", about: "device plugins", files: ownFiles("device_plugin_test", "device_manager_test", "device_plugin_failures_test", "device_plugin_failures_pod_status_test"),
		procs: 1, timeout: 2 * time.Hour, later: "device plugins are still to come",
	},
	{name: "podresources", about: "the PodResources API", files: ownFiles("podresources_test"), procs: 1, timeout: 2 * time.Hour, later: "device plugins are still to come"},
	{name: "dra", about: "dynamic resource allocation", files: ownFiles("dra_test"), procs: 1, timeout: 2 * time.Hour, later: "dynamic resource allocation is still to come"},
	{
		name: "managers", about: "CPU, memory and topology managers", files: ownFiles(`(cpu|memory|topology)_manager(_metrics)?_test`),
		procs: 1, timeout: 2 * time.Hour, later: "the resource managers are still to come",
	},
	{
		name: "eviction", about: "eviction under pressure", files: ownFiles("eviction_test", "system_node_critical_test"),
		procs: 1, timeout: 3 * time.Hour, disk: 16 << 30, later: "it takes three hours, much of the machine's memory and 6 GiB of its disk",
	},
	{
		name: "swap", about: "swap", files: ownFiles("swap_test"), procs: 1, timeout: time.Hour,
		// A pod may have its share of it, which with 1 GiB is less than the suite's pod needs.
		swap:  2 << 30,
		later: "it needs cgroup v2 and swap: only `make vm-suite` has them",
	},
	{name: "shutdown", about: "graceful node shutdown", files: ownFiles("node_shutdown_linux_test"), procs: 1, timeout: time.Hour, logind: true},
}

func groupNames() []string {
	var names []string
	for _, g := range groups {
		name := g.name
		if g.later != "" {
			name += " (later)"
		}
		names = append(names, name)
	}
	return names
}

// chooseGroups returns the groups with these names, or all that are not for later.
func chooseGroups(names string) ([]group, error) {
	var chosen []group
	if names == "" {
		for _, g := range groups {
			if g.later == "" {
				chosen = append(chosen, g)
			}
		}
		return chosen, nil
	}
	for _, name := range strings.Split(names, ",") {
		at := slices.IndexFunc(groups, func(g group) bool { return g.name == name })
		if at < 0 {
			return nil, fmt.Errorf("no group %q; there are %s", name, strings.Join(groupNames(), ", "))
		}
		chosen = append(chosen, groups[at])
	}
	return chosen, nil
}
