// Package exposition writes the two metric documents, /metrics/cadvisor and
// /metrics/resource, from measured rows.
//
// It owns names, types, labels and units of their families and must never
// measure. A document is built and written one family at a time, so that its
// size costs no memory, and straight from the rows: cAdvisor's own collector
// makes a descriptor per sample and has a registry check and sort all of them,
// several times the price of reading the cgroups. A test holds our document to
// the one that cAdvisor's collector makes of the same rows.
package exposition

import (
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/polylet/polylet/services/stats/internal/sampler"
)

// family describes one metric family.
type family struct {
	name, help string
	kind       dto.MetricType
	// when says for which rows there are samples; nil is all.
	when func(*sampler.Row) bool
	// one gives the one sample of a row without labels of its own; each is for
	// those with more samples. One of the two is set.
	one  func(*sampler.Row) float64
	each func(row *sampler.Row, sample func(value float64, labels ...string))
	// extra are the names of the labels that each passes values for.
	extra []string
	// untimed samples carry no timestamp.
	untimed bool
}

// labelled is a row with its labels.
type labelled struct {
	*sampler.Row
	labels []*dto.LabelPair // In name order.
}

// pair returns a label.
func pair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// build makes the family's samples for all rows; nil when there are none.
func (f *family) build(rows []labelled) *dto.MetricFamily {
	out := &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: &f.kind}
	for _, row := range rows {
		if f.when != nil && !f.when(row.Row) {
			continue
		}
		var at *int64
		if !f.untimed {
			at = milliseconds(row.Stats.Timestamp)
		}
		if f.one != nil {
			out.Metric = append(out.Metric, f.sample(f.one(row.Row), row.labels, at))
			continue
		}
		f.each(row.Row, func(value float64, labels ...string) {
			out.Metric = append(out.Metric, f.sample(value, merge(row.labels, f.extra, labels), at))
		})
	}
	if len(out.Metric) == 0 {
		return nil
	}
	return out
}

func (f *family) sample(value float64, labels []*dto.LabelPair, at *int64) *dto.Metric {
	m := &dto.Metric{Label: labels, TimestampMs: at}
	if f.kind == dto.MetricType_COUNTER {
		m.Counter = &dto.Counter{Value: &value}
	} else {
		m.Gauge = &dto.Gauge{Value: &value}
	}
	return m
}

// merge returns labels with more, in name order.
func merge(labels []*dto.LabelPair, names, values []string) []*dto.LabelPair {
	out := make([]*dto.LabelPair, 0, len(labels)+len(names))
	out = append(out, labels...)
	for i, name := range names {
		value := ""
		if i < len(values) {
			value = values[i]
		}
		out = append(out, pair(name, value))
	}
	slices.SortFunc(out, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

func milliseconds(t time.Time) *int64 {
	ms := t.UnixMilli()
	return &ms
}
