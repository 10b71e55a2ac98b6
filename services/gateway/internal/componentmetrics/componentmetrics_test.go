package componentmetrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestAReleaseIsItsMajorAndMinorNumber(t *testing.T) {
	for version, want := range map[string][3]string{
		"v1.36.3":      {"1", "36", "35"},
		"v1.36.0-rc.1": {"1", "36", "35"},
		"1.9":          {"1", "9", "8"},
		"unknown":      {"unknown", "", ""},
	} {
		major, minor := release(version)
		if got := [3]string{major, minor, before(minor)}; got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}

func TestEachGateShowsItsStageAndWhetherItIsOn(t *testing.T) {
	registry := prometheus.NewRegistry()
	if err := Register(registry, []Gate{{Name: "A", Stage: "ALPHA"}, {Name: "B", Stage: "BETA", On: true}, {Name: "G", On: true}}); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP kubernetes_feature_enabled [BETA] This metric records the data about the stage and enablement of a k8s feature.
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="A",stage="ALPHA"} 0
kubernetes_feature_enabled{name="B",stage="BETA"} 1
kubernetes_feature_enabled{name="G",stage=""} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "kubernetes_feature_enabled"); err != nil {
		t.Error(err)
	}
}
