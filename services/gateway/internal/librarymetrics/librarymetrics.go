// Package librarymetrics shows, on the gateway's own registry, what the
// apiserver's library counts of client certificates on its global one. It owns
// which series these are; it must never count anything itself.
package librarymetrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Register puts the series on r.
func Register(r prometheus.Registerer) error {
	return r.Register(&collector{from: legacyregistry.DefaultGatherer, series: map[string]*prometheus.Desc{
		"apiserver_client_certificate_expiration_seconds": prometheus.NewDesc("apiserver_client_certificate_expiration_seconds",
			"[ALPHA] Distribution of the remaining lifetime on the certificate used to authenticate a request.", nil, nil),
	}})
}

// collector passes on some of a gatherer's families.
type collector struct {
	from   prometheus.Gatherer
	series map[string]*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range c.series {
		ch <- desc
	}
}

// Collect implements prometheus.Collector. What could be gathered is passed on
// whatever else failed.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	families, _ := c.from.Gather()
	for _, family := range families {
		desc := c.series[family.GetName()]
		if desc == nil {
			continue
		}
		for _, m := range family.GetMetric() {
			if out, err := metric(desc, family.GetType(), m); err != nil {
				ch <- prometheus.NewInvalidMetric(desc, err)
			} else if out != nil {
				ch <- out
			}
		}
	}
}

func metric(desc *prometheus.Desc, kind dto.MetricType, m *dto.Metric) (prometheus.Metric, error) {
	var labels []string
	for _, pair := range m.GetLabel() {
		labels = append(labels, pair.GetValue())
	}
	switch kind {
	case dto.MetricType_COUNTER:
		return prometheus.NewConstMetric(desc, prometheus.CounterValue, m.GetCounter().GetValue(), labels...)
	case dto.MetricType_HISTOGRAM:
		h := m.GetHistogram()
		buckets := map[float64]uint64{}
		for _, b := range h.GetBucket() {
			buckets[b.GetUpperBound()] = b.GetCumulativeCount()
		}
		return prometheus.NewConstHistogram(desc, h.GetSampleCount(), h.GetSampleSum(), buckets, labels...)
	default:
		return nil, nil
	}
}
