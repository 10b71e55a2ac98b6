package configgen

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Field is one field with another value than a node has.
type Field struct {
	// Path is the field's in JSON: maxPods, logging.verbosity, featureGates.EnvFiles.
	Path string
	// Value is another one, as YAML has it.
	Value any
	// Before are fields that must have these values before it, by path.
	Before map[string]any
	// Back says that it, and what was before it, has to be as it was again for others.
	Back bool
	// Untried says why no test gives a node this value; empty: one does.
	Untried string
	// Machine says that it depends on the machine what becomes of it.
	Machine bool
}

// Fields are all fields, by path, each with another value than it has in current
// (Loaded.Fields). own are values of which only the test's node knows, by path.
func Fields(current map[string]string, own map[string]any) ([]Field, error) {
	var out []Field
	values := others()
	maps.Copy(values, own)
	for _, path := range slices.Sorted(maps.Keys(current)) {
		f := Field{
			Path: path, Before: needs()[path], Untried: untried()[path],
			Back:    needs()[path] != nil || slices.Contains(inTheWay(), path),
			Machine: slices.Contains([]string{"failCgroupV1", "failSwapOn", "featureGates.MemoryQoS", "memoryReservationPolicy", "protectKernelDefaults", "singleProcessOOMKill"}, path),
		}
		value, found := values[path]
		if !found {
			value, found = other(current[path])
		}
		if !found {
			return nil, fmt.Errorf("nobody knows another value of %s than %s: add one to others in configgen", path, current[path])
		}
		f.Value = value
		out = append(out, f)
	}
	return out, nil
}

// other is another value than one as JSON: the other of two, one more, a second more.
func other(current string) (any, bool) {
	var value any
	if json.Unmarshal([]byte(current), &value) != nil {
		return nil, false
	}
	switch v := value.(type) {
	case bool:
		return !v, true
	case float64:
		return v + 1, true
	case string:
		d, err := time.ParseDuration(v)
		return (d + time.Second).String(), err == nil
	}
	return nil, false
}

// others are values of fields of which no other can be made by a rule, or by which it would
// be one that the field may not have.
func others() map[string]any {
	elsewhere := map[string]any{
		"cgroupRoot": "/elsewhere", "kubeletCgroups": "/elsewhere", "podLogsDir": "/elsewhere", "staticPodPath": "/elsewhere", "volumePluginDir": "/elsewhere",
		"kubeReservedCgroup": "/elsewhere", "systemReservedCgroup": "/elsewhere", "containerRuntimeEndpoint": "unix:///elsewhere.sock", "staticPodURL": "http://127.0.0.1:1/elsewhere",
		"address": "0.0.0.0", "healthzBindAddress": "0.0.0.0", "tracing.endpoint": "127.0.0.1:1", "podCIDR": "10.7.0.0/24", "providerID": "else://where",
		"systemCgroups": "/elsewhere",
	}
	names := map[string]any{
		"authorization.mode": "AlwaysAllow", "cgroupDriver": "systemd", "clusterDomain": "else.where", "configMapAndSecretChangeDetectionStrategy": "Get", "contentType": "application/json",
		"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static", "topologyManagerPolicy": "best-effort", "topologyManagerScope": "pod", "hairpinMode": "hairpin-veth",
		"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages", "logging.format": "json", "memoryReservationPolicy": "TieredReservation", "memorySwap.swapBehavior": "NoSwap",
		"showHiddenMetricsForVersion": "1.35", "tlsMinVersion": "VersionTLS13", "reservedSystemCPUs": "0", "containerLogMaxSize": "20Mi",
		"logging.options.json.infoBufferSize": "1", "logging.options.text.infoBufferSize": "1",
	}
	lists := map[string]any{
		"allowedUnsafeSysctls": []any{"kernel.msg*"}, "clusterDNS": []any{"10.96.0.10"}, "enforceNodeAllocatable": []any{"none"}, "tlsCurvePreferences": []any{29},
		"preloadedImagesVerificationAllowlist": []any{"registry.example/a"}, "tlsCipherSuites": []any{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
		"logging.vmodule":                  object("filePattern", "elsewhere"),
		"registerWithTaints":               []any{map[string]any{"key": "else", "effect": "NoSchedule"}},
		"reservedMemory":                   []any{map[string]any{"numaNode": 0, "limits": map[string]any{"memory": "50Mi"}}},
		"shutdownGracePeriodByPodPriority": []any{map[string]any{"priority": 0, "shutdownGracePeriodSeconds": 10}},
	}
	pairs := map[string]any{
		"cpuManagerPolicyOptions": map[string]any{"full-pcpus-only": "true"}, "topologyManagerPolicyOptions": map[string]any{"prefer-closest-numa-nodes": "true"},
		"evictionHard": map[string]any{"memory.available": "51Mi"}, "evictionMinimumReclaim": map[string]any{"memory.available": "1Mi"},
		"evictionSoft": map[string]any{"memory.available": "61Mi"}, "evictionSoftGracePeriod": map[string]any{"memory.available": "2m"},
		"kubeReserved": map[string]any{"cpu": "11m"}, "systemReserved": map[string]any{"cpu": "10m"}, "qosReserved": map[string]any{"memory": "1%"},
		"staticPodURLHeader": map[string]any{"X-Else": []any{"where"}}, "featureGates": map[string]any{"GenericWorkload": true},
	}
	numbers := map[string]any{
		"crashLoopBackOff.maxContainerRestartPeriod": "100s", "imageGCHighThresholdPercent": 99, "imageMaximumGCAge": "200h", "cpuCFSQuotaPeriod": "99ms", "maxParallelImagePulls": 2, "memoryThrottlingFactor": 0.8,
		"podPidsLimit": 4096, "podsPerCore": 200, "shutdownGracePeriod": "30s", "userNamespaces.idsPerPod": 131072, "tracing.samplingRatePerMillion": 1,
	}
	for _, more := range []map[string]any{names, lists, pairs, numbers} {
		maps.Copy(elsewhere, more)
	}
	return elsewhere
}

// untried are fields by which a node changes what is the machine's and not its own, and
// such as no file can change.
func untried() map[string]string {
	return map[string]string{
		"makeIPTablesUtilChains": "the chains are those of a machine that others use",
		"systemCgroups":          "it moves processes of a machine that others use",
		// The library gives the flag's field its default when it adds the flag.
		"logging.options.text.splitStream": "the flag's default goes over the file, with a kubelet too",
	}
}

// inTheWay are fields with whose other value some further field cannot have its own.
func inTheWay() []string {
	return []string{"cpuCFSQuotaPeriod", "enableDebuggingHandlers", "enableServer", "enableSystemLogHandler", "kubeReservedCgroup", "maxParallelImagePulls", "registerNode", "reservedSystemCPUs"}
}

// needs are the values that other fields must have before a field can have its other one.
func needs() map[string]map[string]any {
	off := func(gates ...string) map[string]any {
		out := map[string]any{}
		for _, gate := range gates {
			out["featureGates."+gate] = false
		}
		return out
	}
	reserved := map[string]any{"cpu": "10m"}
	return map[string]map[string]any{
		"cgroupsPerQOS":                        {"enforceNodeAllocatable": []any{"none"}},
		"cpuManagerPolicy":                     {"kubeReserved": reserved},
		"cpuManagerPolicyOptions":              {"kubeReserved": reserved, "cpuManagerPolicy": "static"},
		"memoryManagerPolicy":                  {"reservedMemory": others()["reservedMemory"]},
		"memoryReservationPolicy":              {"featureGates.MemoryQoS": true},
		"preloadedImagesVerificationAllowlist": {"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages"},
		"shutdownGracePeriodCriticalPods":      {"shutdownGracePeriod": "30s"},

		"featureGates.ClusterTrustBundleProjection": {"featureGates.ClusterTrustBundle": true},
		"featureGates.DRAWorkloadResourceClaims":    {"featureGates.GenericWorkload": true},
		"featureGates.ContainerRestartRules":        off("RestartAllContainersOnContainerExits"),
		"featureGates.GracefulNodeShutdown":         off("GracefulNodeShutdownBasedOnPodPriority", "WindowsGracefulNodeShutdown"),
		"featureGates.NodeDeclaredFeatures":         off("ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"),
		"featureGates.PodLevelResources":            off("InPlacePodLevelResourcesVerticalScaling", "PodLevelResourceManagers"),
		"featureGates.ResourceHealthStatus":         off("ResourceHealthStatusMessage"),
	}
}

// Set is a document with a field of another value; the document itself stays.
func Set(document map[string]any, path string, value any) map[string]any {
	out := maps.Clone(document)
	if out == nil {
		out = map[string]any{}
	}
	if first, rest, below := strings.Cut(path, "."); below {
		branch, _ := out[first].(map[string]any)
		out[first] = Set(branch, rest, value)
		return out
	}
	if gates, all := value.(map[string]any); all && path == "featureGates" { // the others stay
		for name, on := range gates {
			out = Set(out, path+"."+name, on)
		}
		return out
	}
	out[path] = value
	return out
}

// Observed are what a node test has seen of fields, by path, as it writes them: a line
// "path: what" for each, and comments that begin with #.
func Observed(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if path, what, found := strings.Cut(strings.TrimSpace(line), ": "); found && !strings.HasPrefix(path, "#") {
			out[path] = what
		}
	}
	return out
}
