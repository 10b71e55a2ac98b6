package configslice

import (
	"regexp"
	"strings"
	"testing"
)

// TestTheClusterMaySetNothingThatLeadsIntoTheHost: a new field may not, until it is in the
// list.
func TestTheClusterMaySetNothingThatLeadsIntoTheHost(t *testing.T) {
	leads := regexp.MustCompile(`(?i)auth|tls|cert|credential|verification|allowlist|path|dir$|file$|files$|conf$|endpoint|url|header|cgroup|address|port$|server|handler|profilinghandler|sysctl|seccomp|security|kerneldefaults|iptables|swapon|providerid|registernode|taints|podcidr|staticpod|logquery|vmodule|shutdown|manager(policy|scope)`)
	seen := map[string]bool{}
	for _, path := range OfCluster() {
		if _, known := Owners(path); !known {
			t.Errorf("%s is no field", path)
		}
		if Fixed()[path] != "" {
			t.Errorf("%s cannot change while a node runs", path)
		}
		if leads.MatchString(path) && path != "containerLogMaxFiles" && path != "featureGates.EnvFiles" {
			t.Errorf("%s is for the node's own files", path)
		}
		if seen[path] {
			t.Errorf("%s stands there twice", path)
		}
		seen[path] = true
	}
}

func TestWhatTheClusterMayNotSetIsRefusedByNameWhateverElseItSets(t *testing.T) {
	before := fieldsOf(t, "")
	for text, want := range map[string]string{
		"maxPods: 7\n": "",
		"logging: {verbosity: 7}\nevictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n": "",
		"featureGates: {EnvFiles: false}\n":                             "",
		"resolvConf: /etc/resolv.conf\n":                                "", // as it is
		"maxPods: 7\nresolvConf: /etc/shadow\n":                         `resolvConf: "/etc/resolv.conf" → "/etc/shadow"`,
		"authentication: {anonymous: {enabled: true}}\n":                "authentication.anonymous.enabled: false → true",
		"authorization: {mode: AlwaysAllow}\n":                          "authorization.mode",
		"authentication: {x509: {clientCAFile: /x}}\n":                  "authentication.x509.clientCAFile",
		"tlsCertFile: /x\ntlsPrivateKeyFile: /y\n":                      "tlsPrivateKeyFile",
		"staticPodPath: /x\n":                                           "staticPodPath",
		"staticPodURL: http://x/\n":                                     "staticPodURL",
		"cgroupDriver: systemd\n":                                       "cgroupDriver",
		"readOnlyPort: 10255\n":                                         "readOnlyPort",
		"tracing: {endpoint: 'x:1'}\n":                                  "tracing.endpoint",
		"allowedUnsafeSysctls: [kernel.msg*]\n":                         "allowedUnsafeSysctls",
		"featureGates: {RotateKubeletServerCertificate: false}\n":       "featureGates.RotateKubeletServerCertificate",
		"featureGates: {KubeletEnsureSecretPulledImages: false}\n":      "featureGates.KubeletEnsureSecretPulledImages",
		"logging: {verbosity: 8}\n":                                     "logging.verbosity: 0 → 8 (at most 7)",
		"nodeLeaseDurationSeconds: 120\n":                               "",
		"nodeLeaseDurationSeconds: 121\n":                               "nodeLeaseDurationSeconds: 40 → 121 (at most 120)",
		"syncFrequency: 1s\nvolumeStatsAggPeriod: 0s\n":                 "",
		"volumeStatsAggPeriod: 1ms\n":                                   `volumeStatsAggPeriod: "1m0s" → "1ms" (at least 1s)`,
		"fileCheckFrequency: 10us\nmaxPods: 9\n":                        "fileCheckFrequency",
		"nodeStatusUpdateFrequency: 100ms\n":                            "nodeStatusUpdateFrequency",
		"registerWithTaints: [{key: a, effect: NoSchedule}]\n":          "registerWithTaints",
		"containerRuntimeEndpoint: unix:///tmp/mine.sock\nmaxPods: 9\n": "containerRuntimeEndpoint",
	} {
		err := ClusterRefusal(Difference(before, fieldsOf(t, text)))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err != nil && strings.Contains(err.Error(), "maxPods") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestTheClusterTakesNoGuardOfTheNodeAway: it may say how much pods may use, and not that
// nothing bounds them where the node's own files say that something does.
func TestTheClusterTakesNoGuardOfTheNodeAway(t *testing.T) {
	const all = "memory.available: 1Mi, nodefs.available: 1%, nodefs.inodesFree: 99%, imagefs.available: 1Gi, imagefs.inodesFree: 1%"
	for _, c := range []struct{ own, cluster, want string }{
		{"podPidsLimit: 100\n", "podPidsLimit: 4000000\n", ""},
		{"podPidsLimit: 100\n", "podPidsLimit: -1\n", "podPidsLimit: 100 → -1 (pods would have no bound of processes any more)"},
		{"podPidsLimit: 100\n", "podPidsLimit: 0\n", "podPidsLimit"},
		{"podPidsLimit: -1\n", "podPidsLimit: 0\n", ""},
		{"", "podPidsLimit: 7\n", ""},
		{"", "evictionHard: {" + all + "}\n", ""},
		{"", "evictionHard: {memory.available: 1Gi}\n", "no threshold of imagefs.available, imagefs.inodesFree, nodefs.available, nodefs.inodesFree any more"},
		{"", "evictionHard: {memory.available: 0%}\nmergeDefaultEvictionSettings: true\n", "no threshold of memory.available any more"},
		{"evictionHard: {memory.available: 1Gi}\n", "evictionHard: {memory.available: 100%}\n", "no threshold of memory.available any more"},
		{"evictionHard: {memory.available: 1Gi}\n", "evictionHard: {memory.available: '1'}\n", ""},
		{"evictionHard: {memory.available: 0%}\n", "evictionHard: {pid.available: 1%}\n", ""},
	} {
		err := ClusterRefusal(Difference(fieldsOf(t, c.own), fieldsOf(t, c.cluster)))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q over %q: %v, want %q", c.cluster, c.own, err, c.want)
		}
	}
}
