package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// family is a metric family: labels and buckets as the golden lists write them,
// separated by commas and blanks.
type family struct{ name, kind, labels, buckets, source string }

// source is a file in which a process lists what it has under a path.
type source struct{ endpoint, process, file string }

var sources = []source{
	{"/metrics", "podsync", "services/podsync/testdata/metrics.golden"},
	{"/metrics", "probes", "services/probes/testdata/metrics.golden"},
	{"/metrics", "stats", "services/stats/testdata/metrics.golden"},
	{"/metrics", "nodestatus", "services/nodestatus/testdata/metrics.golden"},
	{"/metrics", "gateway", "services/gateway/testdata/metrics.golden"},
	{"/metrics", "podsync, nodestatus", "internal/clientmetrics/testdata/requests.golden"},
	{"/metrics", "podsync, nodestatus, gateway", "internal/clientmetrics/testdata/queues.golden"},
	{"/metrics", "all", "internal/daemon/testdata/metrics.golden"},
	{"/metrics/probes", "probes", "services/probes/testdata/probe_metrics.golden"},
	{"/metrics/resource", "stats", "services/stats/internal/exposition/testdata/resource.golden"},
	{"/metrics/cadvisor", "stats", "services/stats/internal/exposition/testdata/cadvisor.golden"},
}

// read returns the families by endpoint and name.
func read(root string) (map[string]map[string]family, error) {
	out := map[string]map[string]family{}
	for _, s := range sources {
		data, err := os.ReadFile(filepath.Join(root, s.file))
		if err != nil {
			return nil, fmt.Errorf("read what %s lists: %w", s.process, err)
		}
		list, err := parse(string(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.file, err)
		}
		for _, f := range list {
			endpoint := s.endpoint
			if strings.HasPrefix(f.name, "kubernetes_healthcheck") {
				endpoint = "/metrics/slis"
			}
			if out[endpoint] == nil {
				out[endpoint] = map[string]family{}
			}
			if other, twice := out[endpoint][f.name]; twice {
				return nil, fmt.Errorf("%s is registered by %s and by %s", f.name, other.source, s.process)
			}
			f.source = s.process
			out[endpoint][f.name] = f
		}
	}
	return out, nil
}

// parse reads a golden list, or a document in Prometheus' text format.
func parse(text string) ([]family, error) {
	if strings.HasPrefix(text, "#") {
		return parseExposition(text)
	}
	var out []family
	for line := range strings.Lines(text) {
		f := family{}
		rest := strings.TrimSpace(line)
		rest, buckets, _ := strings.Cut(rest, " [")
		rest, labels, _ := strings.Cut(rest, " {")
		f.name, f.kind, _ = strings.Cut(rest, " ")
		f.labels, f.buckets = strings.TrimSuffix(labels, "}"), strings.TrimSuffix(buckets, "]")
		out = append(out, f)
	}
	return out, nil
}

func parseExposition(text string) ([]family, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	var out []family
	for _, name := range slices.Sorted(maps.Keys(families)) {
		labels := map[string]bool{}
		for _, m := range families[name].Metric {
			for _, l := range m.Label {
				labels[l.GetName()] = true
			}
		}
		out = append(out, family{
			name: name, kind: strings.ToLower(families[name].GetType().String()), labels: strings.Join(slices.Sorted(maps.Keys(labels)), ","),
		})
	}
	return out, nil
}

// table reads a file of columns separated by tabs; lines with # are comments.
func table(file string, columns int) ([][]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out [][]string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Split(line, "\t")
		if len(row) != columns {
			return nil, fmt.Errorf("%s: %q has %d columns, want %d", file, line, len(row), columns)
		}
		out = append(out, row)
	}
	return out, nil
}

// sameBuckets compares a list with what is known of the kubelet's, which may be
// "first..last/number".
func sameBuckets(ours, kubelets string) bool {
	ends, number, short := strings.Cut(kubelets, "/")
	if !short {
		return ours == kubelets
	}
	first, last, _ := strings.Cut(ends, "..")
	list := strings.Fields(ours)
	return strconv.Itoa(len(list)) == number && list[0] == first && list[len(list)-1] == last
}
