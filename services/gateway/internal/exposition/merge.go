package exposition

import (
	"cmp"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// part is what one process gave.
type part struct {
	service  string
	families []*dto.MetricFamily
	up       bool
}

// label tells the processes' series apart where all of them have the same.
const label = "service"

// shared reports whether a family is one that every process has: those of the
// Go runtime, of the process, and of libraries that each process uses. Their
// series always get the label, so that they do not change with who is up.
func shared(name string) bool {
	for _, prefix := range [...]string{"go_", "process_", "rest_client_", "workqueue_", "grpc_", "promhttp_", "polylet_rpc_", "polylet_build_info", "polylet_dependency_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// merge makes one list of families in name order, without duplicate families
// or series, and adds polylet_up. It changes the families that it is given.
func merge(parts []part) []*dto.MetricFamily {
	type origin struct {
		family  *dto.MetricFamily
		service string
	}
	byName := map[string][]origin{}
	for _, p := range parts {
		for _, f := range p.families {
			byName[f.GetName()] = append(byName[f.GetName()], origin{f, p.service})
		}
	}
	out := make([]*dto.MetricFamily, 0, len(byName)+1)
	for name, origins := range byName {
		into := origins[0].family
		if shared(name) || len(origins) > 1 {
			mark(into, origins[0].service)
		}
		for _, o := range origins[1:] {
			// Two kinds under one name cannot stand in one document.
			if o.family.GetType() == into.GetType() {
				mark(o.family, o.service)
				into.Metric = append(into.Metric, o.family.Metric...)
			}
		}
		out = append(out, into)
	}
	out = append(out, upFamily(parts))
	slices.SortFunc(out, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out
}

// mark adds the label to series that do not have it.
func mark(f *dto.MetricFamily, service string) {
	for _, m := range f.GetMetric() {
		if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == label }) {
			continue
		}
		name, value := label, service
		m.Label = append(m.Label, &dto.LabelPair{Name: &name, Value: &value})
		slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	}
}

func upFamily(parts []part) *dto.MetricFamily {
	name, help, kind := "polylet_up", "Whether the process answered this scrape (1) or is away (0).", dto.MetricType_GAUGE
	f := &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
	for _, p := range parts {
		value, key, service := 0.0, label, p.service
		if p.up {
			value = 1
		}
		f.Metric = append(f.Metric, &dto.Metric{
			Label: []*dto.LabelPair{{Name: &key, Value: &service}},
			Gauge: &dto.Gauge{Value: &value},
		})
	}
	return f
}
