package configslice

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/threshold"
)

// most are the highest values that the cluster may set. From a verbosity of 8 on, bodies of
// requests are logged, those with Secrets too. A lease is renewed at a quarter of its time,
// and the cluster gives a node up by default after 50 s without, which the node itself would
// never see.
var most = map[string]int{"logging.verbosity": 7, "nodeLeaseDurationSeconds": 120}

// least is the shortest of the times between two looks, or to wait for an answer, that the
// cluster may set: with microseconds a service is busy with nothing else, or waits for
// nobody. 0 and less are no such times, but "never" or the default.
const least = time.Second

func looks() []string {
	return []string{"fileCheckFrequency", "httpCheckFrequency", "nodeStatusReportFrequency", "nodeStatusUpdateFrequency", "runtimeRequestTimeout", "syncFrequency", "volumeStatsAggPeriod"}
}

// OfCluster are the fields that a configuration from the cluster may set, as a ConfigMap
// may be written by others than this machine's owners. What is not here only the machine's
// own files and flags can: files and directories of the host and credentials, who is let
// in and to what, what listens where, where pods come from besides the apiserver, what
// guards the node from its pods, what the node is called and is, and what a running node
// cannot change.
func OfCluster() []string {
	return []string{
		"clusterDNS", "clusterDomain", "configMapAndSecretChangeDetectionStrategy",
		"containerLogMaxFiles", "containerLogMaxSize", "containerLogMaxWorkers", "containerLogMonitorInterval",
		"contentType", "cpuCFSQuota", "cpuCFSQuotaPeriod", "cpuManagerReconcilePeriod", "crashLoopBackOff.maxContainerRestartPeriod",
		"enableContentionProfiling", "eventBurst", "eventRecordQPS",
		"evictionHard", "evictionMaxPodGracePeriod", "evictionMinimumReclaim", "evictionPressureTransitionPeriod", "evictionSoft", "evictionSoftGracePeriod",
		"featureGates", "fileCheckFrequency", "httpCheckFrequency",
		"imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "imageMaximumGCAge", "imageMinimumGCAge",
		"kernelMemcgNotification", "kubeAPIBurst", "kubeAPIQPS", "kubeReserved",
		"logging.flushFrequency", "logging.format", "logging.options.json.infoBufferSize", "logging.options.json.splitStream",
		"logging.options.text.infoBufferSize", "logging.options.text.splitStream", "logging.verbosity",
		"maxParallelImagePulls", "maxPods", "memoryReservationPolicy", "memorySwap.swapBehavior", "memoryThrottlingFactor", "mergeDefaultEvictionSettings",
		"nodeLeaseDurationSeconds", "nodeStatusMaxImages", "nodeStatusReportFrequency", "nodeStatusUpdateFrequency",
		"podPidsLimit", "podsPerCore", "qosReserved", "registryBurst", "registryPullQPS", "runtimeRequestTimeout", "serializeImagePulls",
		"showHiddenMetricsForVersion", "singleProcessOOMKill", "streamingConnectionIdleTimeout", "syncFrequency", "systemReserved",
		"tracing.samplingRatePerMillion", "volumeStatsAggPeriod",

		"featureGates.CSIVolumeHealth", "featureGates.ContainerRestartRules", "featureGates.ContainerStopSignals", "featureGates.EnvFiles",
		"featureGates.InPlacePodLevelResourcesVerticalScaling", "featureGates.InPlacePodVerticalScalingInitContainers",
		"featureGates.KubeletCrashLoopBackOffMax", "featureGates.NodeDeclaredFeatures", "featureGates.PodLevelResources",
		"featureGates.PodReadyToStartContainersCondition", "featureGates.ReduceDefaultCrashLoopBackOffDecay", "featureGates.RestartAllContainersOnContainerExits",
	}
}

// ClusterRefusal is an error that names every change that the cluster may not make; nil
// when there is none.
func ClusterRefusal(changes []Change) error {
	var lines []string
	may := OfCluster()
	for _, c := range changes {
		value, err := strconv.Atoi(c.New)
		bound, bounded := most[c.Path]
		switch {
		case !slices.Contains(may, c.Path) && strings.HasPrefix(c.Path, kubeletconfig.GatePrefix):
			lines = append(lines, c.Path)
		case !slices.Contains(may, c.Path):
			lines = append(lines, c.String())
		case bounded && err == nil && value > bound:
			lines = append(lines, fmt.Sprintf("%s (at most %d)", c, bound))
		case slices.Contains(looks(), c.Path) && isShort(c.New):
			lines = append(lines, fmt.Sprintf("%s (at least %s)", c, least))
		default:
			if gone := takenAway(c); gone != "" {
				lines = append(lines, fmt.Sprintf("%s (%s)", c, gone))
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return fmt.Errorf("only the node's own files and flags may set %s: take it out, or give it the node's value", strings.Join(lines, "; "))
}

func isShort(value string) bool {
	var text string
	if json.Unmarshal([]byte(value), &text) != nil {
		return false
	}
	d, err := time.ParseDuration(text)
	return err == nil && d > 0 && d < least
}

// takenAway says which guard of the node against its pods, that its own files and flags give
// it, a change takes away; empty: none. The cluster may make each wider or narrower: which
// figure is no guard any more nobody can say, but none is none.
func takenAway(c Change) string {
	switch c.Path {
	case "podPidsLimit":
		before, _ := strconv.Atoi(c.Old)
		if after, err := strconv.Atoi(c.New); before > 0 && err == nil && after <= 0 {
			return "pods would have no bound of processes any more"
		}
	case "evictionHard":
		after, gone := signals(c.New), []string{}
		for _, signal := range signals(c.Old) {
			if !slices.Contains(after, signal) {
				gone = append(gone, signal)
			}
		}
		if len(gone) > 0 {
			return "no threshold of " + strings.Join(gone, ", ") + " any more: give it one, or set mergeDefaultEvictionSettings too"
		}
	}
	return ""
}

// signals are those that the thresholds of a field evict by, in order. Thresholds that are
// none validation has refused.
func signals(value string) []string {
	texts, out := map[string]string{}, []string{}
	if json.Unmarshal([]byte(value), &texts) != nil {
		return nil
	}
	on, _ := threshold.Parse(threshold.Settings{Hard: texts})
	for _, t := range on {
		out = append(out, t.Signal)
	}
	return out
}
