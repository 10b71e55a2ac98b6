package rows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
)

// table is the table of -rows in Markdown: medians and maxima of both, and
// what the first column's are of the second's.
func table(s Settings, r *report.Results, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What a node notices, and what it costs when nothing happens, %s\n\n", now.UTC().Format("2006-01-02 15:04 UTC"))
	fmt.Fprintf(&b, "Commit %s. %s. %s, %d rounds; each idle stretch %s, %s after what was before it. containerd 2.4.2, kube-apiserver 1.36.3 and etcd 3.6.8 on the same machine, image present.\n",
		report.Commit(), report.Machine(), strings.Join(s.Agents, " and "), s.Rounds, s.Idle, s.Settle)
	b.WriteString("Columns are p50 / max; the ratios are of these. CPU is the agent's own, user and system.\n\n| what |")
	for _, c := range r.Columns {
		fmt.Fprintf(&b, " %s |", c.Name)
	}
	if len(r.Columns) == 2 {
		b.WriteString(" ratio |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(r.Columns)))
	if len(r.Columns) == 2 {
		b.WriteString("---|")
	}
	b.WriteString("\n")
	for _, row := range r.Rows {
		writeRow(&b, r, row)
	}
	return b.String()
}

func writeRow(b *strings.Builder, r *report.Results, row string) {
	fmt.Fprintf(b, "| %s |", row)
	var halves, maxima []float64
	for _, c := range r.Columns {
		values := slices.Sorted(slices.Values(c.Values[row]))
		if len(values) == 0 {
			b.WriteString(" – |")
			continue
		}
		half, most := report.Quantile(values, 0.5), values[len(values)-1]
		halves, maxima = append(halves, half), append(maxima, most)
		fmt.Fprintf(b, " %.0f / %.0f |", half, most)
	}
	if len(r.Columns) == 2 {
		if len(halves) == 2 && halves[1] > 0 && maxima[1] > 0 {
			fmt.Fprintf(b, " %.2f / %.2f |", halves[0]/halves[1], maxima[0]/maxima[1])
		} else {
			b.WriteString(" – |")
		}
	}
	b.WriteString("\n")
}
