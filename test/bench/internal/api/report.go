package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
)

// wanted is what polylet wants of a row, as a share of the kubelet's figure.
func wanted(row string) string {
	switch {
	case strings.HasPrefix(row, "exec true") && !strings.Contains(row, "CPU"):
		return "≤ 1.0"
	case strings.HasPrefix(row, "log") && strings.HasSuffix(row, "MiB/s"):
		return "≥ 10"
	case strings.HasSuffix(row, "MiB/s"):
		return "≥ 1.0"
	case strings.HasPrefix(row, "/") && strings.HasSuffix(row, "requests, ms"):
		return "< 1.0"
	case strings.HasPrefix(row, "/") && strings.HasSuffix(row, ", ms"):
		return "≤ 0.5"
	case row == "/metrics, series":
		return "< 1.0"
	}
	return ""
}

// table is the table in Markdown, with the ratio of polylet's median to the
// kubelet's, and what only one of them has in its documents.
func table(s Settings, r *report.Results, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The node's API per agent with %d pods, %s\n\n", s.Burst, now.UTC().Format("2006-01-02 15:04 UTC"))
	fmt.Fprintf(&b, "Commit %s. %s. %d rounds in turn, each on a fresh node; containerd 2.4.2, kube-apiserver 1.36.3 and etcd 3.6.8 on the same machine. Columns are p50 / max.\n", report.Commit(), report.Machine(), s.Rounds)
	fmt.Fprintf(&b, "Documents: %d requests each over one warm HTTP/2 connection, gzip accepted, times until the last byte. CPU is that of all the agent's processes, and includes what they do meanwhile of their own accord. What is read is checked: every pod in every document, every byte of every stream.\n\n", s.Requests)
	b.WriteString("| what |")
	for _, c := range r.Columns {
		fmt.Fprintf(&b, " %s |", c.Name)
	}
	b.WriteString(" ratio | wanted |\n|---|" + strings.Repeat("---|", len(r.Columns)+2) + "\n")
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, c := range r.Columns {
			b.WriteString(" " + middleAndMost(c.Values[row]) + " |")
		}
		fmt.Fprintf(&b, " %s | %s |\n", ratio(r, row), wanted(row))
	}
	writeDifferences(&b, r)
	return b.String()
}

func middleAndMost(values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	sorted := slices.Sorted(slices.Values(values))
	return fmt.Sprintf("%.3g / %.3g", report.Quantile(sorted, 0.5), sorted[len(sorted)-1])
}

// ratio is polylet's median by the kubelet's, or empty.
func ratio(r *report.Results, row string) string {
	medians := map[string]float64{}
	for _, c := range r.Columns {
		medians[c.Name] = report.Quantile(slices.Sorted(slices.Values(c.Values[row])), 0.5)
	}
	if medians["polylet"] == 0 || medians["kubelet"] == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", medians["polylet"]/medians["kubelet"])
}

func writeDifferences(b *strings.Builder, r *report.Results) {
	if len(r.Columns) != 2 {
		return
	}
	b.WriteString("\n## What only one has in its documents\n\nNames of metrics with those of their labels that have values, and paths in JSON, with these pods.\n")
	for _, d := range documents() {
		for i, c := range r.Columns {
			other := r.Columns[1-i]
			var only []string
			for _, name := range slices.Sorted(maps.Keys(c.Shapes[d.path])) {
				if !other.Shapes[d.path][name] {
					only = append(only, "`"+name+"`")
				}
			}
			if len(only) > 0 {
				fmt.Fprintf(b, "\n%s, only %s (%d): %s\n", d.path, c.Name, len(only), strings.Join(only, ", "))
			}
		}
	}
}
