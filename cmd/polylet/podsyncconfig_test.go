package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	podsyncservice "github.com/polylet/polylet/services/podsync"
)

func TestANodeThatNobodyHasConfiguredRunsPodsAsPodsyncDoesByDefault(t *testing.T) {
	got, err := podsyncConfig(loadedWith(t))
	if err != nil {
		t.Fatal(err)
	}
	want := podsyncservice.Default()
	// What no default can know.
	want.Node.Name, want.Node.Standalone = "n", true
	want.Runtime.Endpoint = got.Runtime.Endpoint
	want.Admission.DeclaredFeatures = got.Admission.DeclaredFeatures
	want.Pods.SingleProcessOOMKill = got.Pods.SingleProcessOOMKill // as the cgroups of the machine have it
	eachField("", reflect.ValueOf(want), reflect.ValueOf(got), func(path string, a, b any, same bool) {
		if !same && (!reflect.ValueOf(a).IsZero() || reflect.ValueOf(b).Kind() != reflect.Slice || reflect.ValueOf(b).Len() > 0) {
			t.Errorf("%s is %v by default, and the configuration gives %v", path, a, b)
		}
	})
	if len(got.Admission.DeclaredFeatures) == 0 || got.Runtime.Endpoint == "" {
		t.Errorf("features %v, runtime %q", got.Admission.DeclaredFeatures, got.Runtime.Endpoint)
	}
}

// Each field of podsync's configuration is set by something that a user can say.
func TestNoFieldOfPodsyncsConfigurationIsBeyondAUsersReach(t *testing.T) {
	const file = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
podLogsDir: /logs
maxPods: 7
podCIDR: 10.1.0.0/24
containerRuntimeEndpoint: unix:///run/other.sock
runtimeRequestTimeout: 1m
staticPodPath: /manifests
fileCheckFrequency: 1s
staticPodURL: http://127.0.0.1/pods
staticPodURLHeader: {X: ["one"]}
httpCheckFrequency: 1s
allowedUnsafeSysctls: [net.core.*]
clusterDomain: example.org
clusterDNS: [10.96.0.10]
resolvConf: /resolv
makeIPTablesUtilChains: false
failSwapOn: false
failCgroupV1: false
protectKernelDefaults: true
seccompDefault: true
singleProcessOOMKill: true
userNamespaces: {idsPerPod: 131072}
crashLoopBackOff: {maxContainerRestartPeriod: 7s}
cpuManagerPolicy: static
memoryManagerPolicy: Static
serializeImagePulls: false
maxParallelImagePulls: 3
registryPullQPS: 1
registryBurst: 2
enableControllerAttachDetach: false
imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages
preloadedImagesVerificationAllowlist: [a/b]
imageGCHighThresholdPercent: 70
imageGCLowThresholdPercent: 60
imageMinimumGCAge: 1m
imageMaximumGCAge: 1h
containerLogMaxFiles: 3
containerLogMaxWorkers: 2
containerLogMaxSize: 1Mi
containerLogMonitorInterval: 3s
cgroupsPerQOS: true
cgroupRoot: /x
cgroupDriver: systemd
systemCgroups: /x/system
memoryThrottlingFactor: 0.5
memoryReservationPolicy: TieredReservation
qosReserved: {memory: 50%}
featureGates: {MemoryQoS: true, QOSReserved: true}
cpuCFSQuota: false
cpuCFSQuotaPeriod: 10ms
podPidsLimit: 100
enforceNodeAllocatable: [system-reserved]
systemReservedCgroup: /system.slice
systemReserved: {cpu: "1", memory: 1Mi, pid: "7"}
reservedMemory: [{numaNode: 0, limits: {memory: 101Mi}}]
tracing: {endpoint: "collector:4317", samplingRatePerMillion: 7}
`
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded := loadedWith(
		t, "--config="+path, "--root-dir=/root", "--node-ip=192.0.2.1", "--cloud-provider=external", "--kubeconfig=/kubeconfig",
		"--maximum-dead-containers=9", "--maximum-dead-containers-per-container=2", "--minimum-container-ttl-duration=1m",
		"--image-credential-provider-config=/c", "--image-credential-provider-bin-dir=/b",
	)
	got, err := podsyncConfig(loaded)
	if err != nil {
		t.Fatal(err)
	}
	addTracing(&got, loaded.Config.Tracing)
	// Gates and what the machine's flags say are tested beside them.
	elsewhere := []string{
		"Admission.Deadline", "Admission.PodLevelResources", "StaticPods.APIReferences", "Machine.LeaveKernelSettings",
		"Pods.FirstRestartPeriod", "Pods.RestartRules", "Pods.RestartAll", "Pods.EnvFiles", "Pods.HostnameOverride", "Pods.StopSignals", "Pods.ReadyToStart", "Pods.TrustBundles", "Pods.Certificates", "Pods.VolumeHealth", "Pods.SELinuxMount", "Pods.ProjectQuotas",
		"Resize.ExclusiveCPUs", "Resize.ExclusiveMemory", "Resize.PodLevel", "Resize.InitContainers", "Images.Verify", "Images.CredentialProviderTokens",
		"Cgroups.PerQOS", "Pods.LimitedSwap", // The latter needs cgroup v2.
	}
	eachField("", reflect.ValueOf(podsyncservice.Default()), reflect.ValueOf(got), func(path string, was, is any, same bool) {
		if same != slices.Contains(elsewhere, path) && path != "Node.Standalone" {
			t.Errorf("%s is %v, and was %v before anything was said", path, is, was)
		}
	})
}

// eachField calls f for each field that is no struct with what a and b have in it.
func eachField(path string, a, b reflect.Value, f func(path string, a, b any, same bool)) {
	if b.Kind() == reflect.Pointer && b.Type().Elem().Kind() == reflect.Struct && !a.IsNil() && !b.IsNil() {
		a, b = a.Elem(), b.Elem()
	}
	if b.Kind() != reflect.Struct {
		f(path, a.Interface(), b.Interface(), reflect.DeepEqual(a.Interface(), b.Interface()))
		return
	}
	for i := range b.NumField() {
		name := b.Type().Field(i).Name
		if path != "" {
			name = path + "." + name
		}
		eachField(name, a.Field(i), b.Field(i), f)
	}
}
