package kubeletconfig

import (
	"strings"

	"github.com/spf13/pflag"
)

// fieldOf is the field that a flag sets; empty when it has one of its own in Flags.
func fieldOf(f *pflag.Flag) string {
	if path, ok := strings.CutSuffix(f.Usage, " of the configuration file, and goes before it."); ok {
		return strings.TrimPrefix(path, "Sets ")
	}
	return map[string]string{
		"register-node": "registerNode", "register-with-taints": "registerWithTaints", "provider-id": "providerID",
		"pod-cidr": "podCIDR", "feature-gates": "featureGates", "node-status-update-frequency": "nodeStatusUpdateFrequency",
		"node-status-max-images": "nodeStatusMaxImages", "kube-api-qps": "kubeAPIQPS", "kube-api-burst": "kubeAPIBurst",
		"kube-api-content-type": "contentType", "event-qps": "eventRecordQPS", "event-burst": "eventBurst",
		"v": "logging.verbosity", "vmodule": "logging.vmodule", "logging-format": "logging.format",
		"log-flush-frequency": "logging.flushFrequency", "log-text-split-stream": "logging.options.text.splitStream",
		"log-text-info-buffer-size": "logging.options.text.infoBufferSize",
		"log-json-split-stream":     "logging.options.json.splitStream", "log-json-info-buffer-size": "logging.options.json.infoBufferSize",
	}[f.Name]
}

// flagEffects says what the flags do that set no field of KubeletConfiguration;
// those that do have the effect of their field.
func flagEffects() map[string]Effect {
	out := map[string]Effect{
		"config": used("all"), "config-dir": used("all"), "config-slice": used("all"), "follow-config-slice": used("all"), "help": used("all"), "version": used("all"),
		"kubeconfig":                               used("podsync, nodestatus"),
		"bootstrap-kubeconfig":                     used("podsync, nodestatus"),
		"root-dir":                                 used("podsync, stats"),
		"cert-dir":                                 used("podsync, nodestatus, gateway"),
		"hostname-override":                        used("all"),
		"node-ip":                                  used("podsync, nodestatus, gateway"),
		"node-labels":                              used("nodestatus"),
		"cloud-provider":                           used("podsync, nodestatus"),
		"runtime-cgroups":                          partly("stats", "the cgroup is measured; nobody's out-of-memory score is adjusted"),
		"image-credential-provider-config":         used("podsync"),
		"image-credential-provider-bin-dir":        used("podsync"),
		"lock-file":                                used("run, podsync"),
		"exit-on-lock-contention":                  used("run, podsync"),
		"housekeeping-interval":                    ours("containers are measured when somebody asks"),
		"minimum-container-ttl-duration":           used("podsync"),
		"maximum-dead-containers-per-container":    used("podsync"),
		"maximum-dead-containers":                  used("podsync"),
		"experimental-mounter-path":                later("the host's mount is used; " + noVolumes),
		"experimental-allocatable-ignore-eviction": later("hard eviction thresholds always lessen allocatable"),

		"socket-dir": used("all"), "socket-group": used("all"), "gateway-user": used("all"), "probes-user": used("all"),
		"stats-user": used("all"), "nodestatus-user": used("all"), "node-page-address": used("gateway"), "compatible-stream-verbs": used("gateway"), "services": used("run"), "live-config": used("run, handout"), "config-deadline": used("run, handout"), "dynamic-config-dir": used("run, handout, nodestatus"), "leave-kernel-settings": used("podsync"),
	}
	for _, name := range append(ignoredTexts(), ignoredSwitches()...) {
		if _, said := out[name]; !said {
			out[name] = idle(cadvisorLegacy)
		}
	}
	return out
}
