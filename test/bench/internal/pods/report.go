package pods

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
)

// addPods adds each pod's own time, and for several pods when half and all of
// them were done, counted from the first request.
func addPods(c *report.Column, row string, starts map[string]time.Time, began time.Time, ends map[string]stage.Moments, at func(stage.Moments) time.Time) {
	var whole []float64
	for name, m := range ends {
		c.Add(row+", ms", report.Milliseconds(at(m).Sub(starts[name])))
		whole = append(whole, report.Milliseconds(at(m).Sub(began)))
	}
	if len(whole) == 1 {
		return
	}
	slices.Sort(whole)
	c.Add(row+", half of them, ms", whole[(len(whole)-1)/2])
	c.Add(row+", all of them, ms", whole[len(whole)-1])
}

// table is the report in Markdown.
func table(s Settings, r *report.Results, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Pods per agent and for the runtime alone, %s\n\n", now.UTC().Format("2006-01-02 15:04 UTC"))
	fmt.Fprintf(&b, "Commit %s. %s. %d rounds of %d single pods and a burst of %d; containerd 2.4.2, kube-apiserver 1.36.3 and etcd 3.6.8 on the same machine, image present.\n",
		report.Commit(), report.Machine(), s.Rounds, s.Samples, s.Burst)
	fmt.Fprintf(&b, "In a burst the runtime alone gets %d pods at a time. Columns are p50 / p90 / max.\n\n", s.Parallel)
	b.WriteString("| what |")
	for _, c := range r.Columns {
		fmt.Fprintf(&b, " %s |", c.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(r.Columns)) + "\n")
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, c := range r.Columns {
			values := slices.Sorted(slices.Values(c.Values[row]))
			if len(values) == 0 {
				b.WriteString(" – |")
				continue
			}
			last := values[len(values)-1]
			fmt.Fprintf(&b, " %s / %s / %s |", figure(report.Quantile(values, 0.5)), figure(report.Quantile(values, 0.9)), figure(last))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// figure has as many digits as mean something.
func figure(v float64) string {
	if v < 20 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}
