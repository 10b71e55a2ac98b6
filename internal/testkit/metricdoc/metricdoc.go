// Package metricdoc lists the metric families that a process registers, those
// too that have no series yet, in a form that a golden file keeps. It is for
// tests: dashboards hold on to names, types, labels and buckets, so a change of
// any of them must show in a review. It must never ship, nor change what is registered.
package metricdoc

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Family is one metric family.
type Family struct {
	// Name and Help are as they are exposed.
	Name, Help string
	// Type is counter, gauge or histogram; "unknown" for a custom collector
	// that had nothing to show.
	Type string
	// Labels are the names of the labels, sorted.
	Labels []string
	// Buckets are the upper bounds of a histogram.
	Buckets []float64
}

// String is one line: name, type, labels in braces, buckets in brackets.
func (f Family) String() string {
	line := f.Name + " " + f.Type
	if len(f.Labels) > 0 {
		line += " {" + strings.Join(f.Labels, ",") + "}"
	}
	if len(f.Buckets) > 0 {
		line += " ["
		for i, b := range f.Buckets {
			if i > 0 {
				line += " "
			}
			line += strconv.FormatFloat(b, 'g', 6, 64)
		}
		line += "]"
	}
	return line
}

// Recorder is a registry that remembers what was registered.
type Recorder struct {
	*prometheus.Registry
	collectors []prometheus.Collector
}

// New returns an empty Recorder.
func New() *Recorder { return &Recorder{Registry: prometheus.NewRegistry()} }

// Register implements prometheus.Registerer.
func (r *Recorder) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return r.Registry.Register(c)
}

// MustRegister implements prometheus.Registerer.
func (r *Recorder) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Text is the list of Families, one per line.
func (r *Recorder) Text() []byte {
	var out strings.Builder
	for _, f := range r.Families() {
		out.WriteString(f.String() + "\n")
	}
	return []byte(out.String())
}

// Families are all that were registered, in name order. Vectors without series
// are given one, so it is called last.
func (r *Recorder) Families() []Family {
	all := map[string]Family{}
	for _, c := range r.collectors {
		for _, f := range families(c) {
			all[f.Name] = f
		}
	}
	out := make([]Family, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name])
	}
	return out
}

func families(c prometheus.Collector) []Family {
	byDesc := map[string]Family{}
	for _, d := range drain(c.Describe) {
		f := parse(d.String())
		byDesc[d.String()] = f
		populate(c, len(f.Labels))
	}
	for _, m := range drain(c.Collect) {
		f, ok := byDesc[m.Desc().String()]
		var sample dto.Metric
		if !ok || m.Write(&sample) != nil {
			continue
		}
		switch {
		case sample.Counter != nil:
			f.Type = "counter"
		case sample.Gauge != nil:
			f.Type = "gauge"
		case sample.Histogram != nil:
			f.Type, f.Buckets = "histogram", nil
			for _, b := range sample.Histogram.Bucket {
				f.Buckets = append(f.Buckets, b.GetUpperBound())
			}
		}
		byDesc[m.Desc().String()] = f
	}
	return slices.Collect(maps.Values(byDesc))
}

// drain collects what a collector's method sends.
func drain[T any](send func(chan<- T)) []T {
	ch := make(chan T)
	go func() { send(ch); close(ch) }()
	var out []T
	for x := range ch {
		out = append(out, x)
	}
	return out
}

// populate gives a vector one series.
func populate(c prometheus.Collector, labels int) {
	values := make([]string, labels)
	for i := range values {
		values[i] = "x"
	}
	switch vector := c.(type) {
	case *prometheus.CounterVec:
		_, _ = vector.GetMetricWithLabelValues(values...) // the number fits
	case interface {
		GetMetricWithLabelValues(labels ...string) (prometheus.Gauge, error)
	}: // a vector, or what has one
		_, _ = vector.GetMetricWithLabelValues(values...)
	case *prometheus.HistogramVec:
		_, _ = vector.GetMetricWithLabelValues(values...)
	}
}

// The only way to a descriptor's parts is its text.
var (
	description = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), .*constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constLabel  = regexp.MustCompile(`(\w+)="`)
)

func parse(text string) Family {
	parts := description.FindStringSubmatch(text)
	if parts == nil {
		panic(fmt.Sprintf("metricdoc: a descriptor reads %s", text))
	}
	f := Family{Type: "unknown"}
	f.Name, _ = strconv.Unquote(parts[1])
	f.Help, _ = strconv.Unquote(parts[2])
	for _, m := range constLabel.FindAllStringSubmatch(parts[3], -1) {
		f.Labels = append(f.Labels, m[1])
	}
	if parts[4] != "" {
		for name := range strings.SplitSeq(parts[4], ",") {
			f.Labels = append(f.Labels, strings.TrimSpace(name))
		}
	}
	slices.Sort(f.Labels)
	return f
}
