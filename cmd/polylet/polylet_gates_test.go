package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/kubeletconfig"
)

// loadedWith is the configuration that these arguments give.
func loadedWith(t *testing.T, args ...string) *kubeletconfig.Loaded {
	t.Helper()
	loaded, err := kubeletconfig.Load(append([]string{"--hostname-override=n"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func TestTheNodeDeclaresWhatItsGatesLeaveOn(t *testing.T) {
	const streams, whole, init, all = "ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"
	for gates, want := range map[string][]string{
		"":                 {streams, whole, init, all},
		streams + "=false": {whole, init, all},
		all + "=false":     {streams, whole, init},
		"NodeDeclaredFeatures=false," + streams + "=false," + whole + "=false," + init + "=false," + all + "=false": nil,
	} {
		loaded := loadedWith(t, "--feature-gates="+gates)
		podsync, err := podsyncConfig(loaded)
		if err != nil {
			t.Fatal(err)
		}
		if got := nodestatusConfig(loaded).DeclaredFeatures; !slices.Equal(got, want) || !slices.Equal(podsync.Admission.DeclaredFeatures, want) || (podsync.Admission.DeclaredFeatures == nil) != (want == nil) {
			t.Errorf("%q: the Node says %v, podsync asks for %v, want %v", gates, got, podsync.Admission.DeclaredFeatures, want)
		}
	}
}

func TestWhatIsNoAddressIsNoNameServer(t *testing.T) {
	cfg, err := podsyncConfig(loadedWith(t, "--cluster-dns=10.96.0.10,dns.example,fd00::a"))
	if err != nil || !slices.Equal(cfg.Network.ClusterDNS, []string{"10.96.0.10", "fd00::a"}) {
		t.Errorf("name servers %v, %v", cfg.Network.ClusterDNS, err)
	}
}

func TestWebSocketsAreHandedOnWhenTheirGateIsOff(t *testing.T) {
	for gates, want := range map[string]bool{"": false, "ExtendWebSocketsToKubelet=false": true} {
		if cfg, err := gatewayConfig(loadedWith(t, "--feature-gates="+gates)); err != nil || cfg.KeepWebSockets != want {
			t.Errorf("%q: kept %v, %v", gates, cfg.KeepWebSockets, err)
		}
	}
}

func TestTheGatesOfProjectedSourcesReachPodsync(t *testing.T) {
	for gates, want := range map[string]bool{"": false, "ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true": true} {
		if c, err := podsyncConfig(loadedWith(t, "--feature-gates="+gates)); err != nil || c.Pods.TrustBundles != want || c.Pods.Certificates != want {
			t.Errorf("%q: trust bundles are projected: %v, certificates: %v, %v", gates, c.Pods.TrustBundles, c.Pods.Certificates, err)
		}
	}
}

func TestTheGateOfVolumesHealthReachesPodsync(t *testing.T) {
	for gates, want := range map[string]bool{"": false, "CSIVolumeHealth=true": true} {
		if c, err := podsyncConfig(loadedWith(t, "--feature-gates="+gates)); err != nil || c.Pods.VolumeHealth != want {
			t.Errorf("%q: volumes' health is told: %v, %v", gates, c.Pods.VolumeHealth, err)
		}
	}
}

func TestDriversAreAskedByItselfWithTheGateOfVolumesHealthAndAPeriod(t *testing.T) {
	for args, want := range map[string]bool{
		"--feature-gates=": false, "--feature-gates=CSIVolumeHealth=true": true,
		"--feature-gates=CSIVolumeHealth=true --volume-stats-agg-period=-1s": false,
	} {
		if got := asksDrivers(loadedWith(t, strings.Fields(args)...)); got != want {
			t.Errorf("%q: asked: %v", args, got)
		}
	}
}

func TestTheGateOfSELinuxMountsReachesPodsync(t *testing.T) {
	for gates, want := range map[string]bool{"": false, "SELinuxMount=true": true} {
		if c, err := podsyncConfig(loadedWith(t, "--feature-gates="+gates)); err != nil || c.Pods.SELinuxMount != want {
			t.Errorf("%q: all volumes are mounted with labels: %v, %v", gates, c.Pods.SELinuxMount, err)
		}
	}
}

func TestTheGateOfProjectQuotasReachesPodsync(t *testing.T) {
	for gates, want := range map[string]bool{"": false, "LocalStorageCapacityIsolationFSQuotaMonitoring=true": true} {
		if c, err := podsyncConfig(loadedWith(t, "--feature-gates="+gates)); err != nil || c.Pods.ProjectQuotas != want {
			t.Errorf("%q: emptyDirs are counted by project quotas: %v, %v", gates, c.Pods.ProjectQuotas, err)
		}
	}
}

func TestTheGatesOfAPodsFieldsReachPodsync(t *testing.T) {
	for gates, want := range map[string][4]bool{ // EnvFiles, HostnameOverride, ContainerStopSignals and the condition
		"":                          {true, true, false, true}, // the defaults of the release
		"EnvFiles=false":            {false, true, false, true},
		"HostnameOverride=false":    {true, false, false, true},
		"ContainerStopSignals=true": {true, true, true, true},
		"PodReadyToStartContainersCondition=false": {true, true, false, false},
	} {
		c, err := podsyncConfig(loadedWith(t, "--feature-gates="+gates))
		if err != nil {
			t.Fatal(err)
		}
		if got := [4]bool{c.Pods.EnvFiles, c.Pods.HostnameOverride, c.Pods.StopSignals, c.Pods.ReadyToStart}; got != want {
			t.Errorf("%q: on are %v, want %v", gates, got, want)
		}
	}
}
