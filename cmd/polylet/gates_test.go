package main

import (
	"slices"
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
		if got := nodestatusConfig(loaded).DeclaredFeatures; !slices.Equal(got, want) || !slices.Equal(podsync.DeclaredFeatures, want) || (podsync.DeclaredFeatures == nil) != (want == nil) {
			t.Errorf("%q: the Node says %v, podsync asks for %v, want %v", gates, got, podsync.DeclaredFeatures, want)
		}
	}
}

func TestWhatIsNoAddressIsNoNameServer(t *testing.T) {
	cfg, err := podsyncConfig(loadedWith(t, "--cluster-dns=10.96.0.10,dns.example,fd00::a"))
	if err != nil || !slices.Equal(cfg.ClusterDNS, []string{"10.96.0.10", "fd00::a"}) {
		t.Errorf("name servers %v, %v", cfg.ClusterDNS, err)
	}
}

func TestWebSocketsAreHandedOnWhenTheirGateIsOff(t *testing.T) {
	for gates, want := range map[string]bool{"": false, "ExtendWebSocketsToKubelet=false": true} {
		if cfg, err := gatewayConfig(loadedWith(t, "--feature-gates="+gates)); err != nil || cfg.KeepWebSockets != want {
			t.Errorf("%q: kept %v, %v", gates, cfg.KeepWebSockets, err)
		}
	}
}

func TestTheGatesOfAPodsFieldsReachPodsync(t *testing.T) {
	for gates, want := range map[string][4]bool{ // EnvFiles, HostnameOverride, ContainerStopSignals and the condition are off
		"":                          {false, false, true, false}, // the defaults of the release
		"EnvFiles=false":            {true, false, true, false},
		"HostnameOverride=false":    {false, true, true, false},
		"ContainerStopSignals=true": {false, false, false, false},
		"PodReadyToStartContainersCondition=false": {false, false, true, true},
	} {
		c, err := podsyncConfig(loadedWith(t, "--feature-gates="+gates))
		if err != nil {
			t.Fatal(err)
		}
		if got := [4]bool{c.NoEnvFiles, c.NoHostnameOverride, c.NoStopSignals, c.NoReadyToStart}; got != want {
			t.Errorf("%q: off are %v, want %v", gates, got, want)
		}
	}
}
