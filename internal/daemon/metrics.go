package daemon

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/health"
)

// buildMetric says which build the process is.
func buildMetric() prometheus.Collector {
	build := buildinfo.Get()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "polylet_build_info", Help: "Always 1; the labels say which build the process is.",
		ConstLabels: prometheus.Labels{
			"version": build.Version, "kubernetes_version": build.KubernetesVersion, "commit": build.Commit,
			"go_version": build.GoVersion, "protocol": strconv.FormatUint(uint64(build.Protocol), 10),
		},
	})
	info.Set(1)
	return info
}

// collectProcess puts on the main registry what every process has.
func (d *Daemon) collectProcess() error {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildMetric(),
		dependencies{d.tracker},
	} {
		if err := d.registry.Register(c); err != nil {
			return fmt.Errorf("daemon: register process metrics: %w", err)
		}
	}
	return nil
}

// dependencies shows what the process needs, as GetInfo does.
type dependencies struct{ tracker *health.Tracker }

var dependencyReady = prometheus.NewDesc("polylet_dependency_ready",
	"Whether what the process depends on can be used (1) or not (0).", []string{"dependency"}, nil)

func (dependencies) Describe(ch chan<- *prometheus.Desc) { ch <- dependencyReady }

func (c dependencies) Collect(ch chan<- prometheus.Metric) {
	for _, dep := range c.tracker.Dependencies() {
		value := 0.0
		if dep.Ready {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(dependencyReady, prometheus.GaugeValue, value, dep.Name)
	}
}
