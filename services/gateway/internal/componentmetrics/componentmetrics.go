// Package componentmetrics shows in metrics which release the node behaves as and which
// features are on, in the series of every Kubernetes component. The gateway has
// them for all five processes: they are one executable with one configuration,
// and where the gateway does not answer, nobody scrapes. It must never decide whether a
// feature is on.
package componentmetrics

import (
	"errors"
	"runtime"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/polylet/polylet/internal/buildinfo"
)

// Gate is a feature gate: Stage is ALPHA, BETA, DEPRECATED or empty.
type Gate struct {
	Name, Stage string
	On          bool
}

// Register puts the series on r. gates are the feature gates in effect.
func Register(r prometheus.Registerer, gates []Gate) error {
	build := buildinfo.Get()
	major, minor := release(build.KubernetesVersion)
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info",
		Help: "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running. The commit is polylet's own.",
		ConstLabels: prometheus.Labels{
			"major": major, "minor": minor, "git_version": build.KubernetesVersion, "git_commit": build.Commit, "git_tree_state": "",
			"build_date": "", "go_version": build.GoVersion, "compiler": runtime.Compiler, "platform": runtime.GOOS + "/" + runtime.GOARCH,
		},
	})
	info.Set(1)
	versions := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "version_info", Help: "[ALPHA] Provides the compatibility version info of the component. The component label is the name of the component, usually kube, but is relevant for aggregated-apiservers.",
		ConstLabels: prometheus.Labels{"component": "kube", "binary": major + "." + minor, "emulation": major + "." + minor, "min_compat": major + "." + before(minor)},
	})
	versions.Set(1)
	if err := errors.Join(r.Register(info), r.Register(versions)); err != nil {
		return err
	}
	enabled := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_feature_enabled", Help: "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
	}, []string{"name", "stage"})
	for _, gate := range gates {
		value := 0.0
		if gate.On {
			value = 1
		}
		enabled.WithLabelValues(gate.Name, gate.Stage).Set(value)
	}
	return r.Register(enabled)
}

// before is the release before this one.
func before(minor string) string {
	n, err := strconv.Atoi(minor)
	if err != nil {
		return minor
	}
	return strconv.Itoa(n - 1)
}

// release splits v1.36.6 into 1 and 36.
func release(version string) (major, minor string) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(rest, ".")
	return major, minor
}
