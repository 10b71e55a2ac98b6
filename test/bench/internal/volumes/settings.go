package volumes

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/rounds"
)

// Settings are the flags of `bench volumes`.
type Settings struct {
	rounds.Config
	// Own is how many pods have volumes of the node's own, and Driven how many have one of a
	// CSI driver.
	Own, Driven int
}

// Command adds its flags and returns what measures.
func Command(fs *flag.FlagSet) func(context.Context) error {
	var s Settings
	s.Flags(fs)
	fs.IntVar(&s.Own, "own", 100, "pods with a configMap, a secret, a token and an emptyDir")
	fs.IntVar(&s.Driven, "driven", 30, "pods with a volume of a CSI driver each")
	return func(ctx context.Context) error {
		return rounds.Run(ctx, s.Config, "volumes",
			func(ctx context.Context, agent string, r *report.Results) error { return measure(ctx, s, agent, r) },
			func(r *report.Results, now time.Time) string { return table(s, r, now) })
	}
}

// table is the report in Markdown: of two agents with what the medians of the first are of
// the second's.
func table(s Settings, r *report.Results, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Pods with volumes, %s\n\n", now.UTC().Format("2006-01-02 15:04 UTC"))
	fmt.Fprintf(&b, "Commit %s. %s. %s, %d rounds, at most %d pods are created at a time; containerd 2.4.2, kube-apiserver 1.36.3 and etcd 3.6.8 on the same machine, image present.\n",
		report.Commit(), report.Machine(), strings.Join(s.Agents, " and "), s.Rounds, together)
	b.WriteString("Columns are p50 / p90 / max; the ratio is of p50.\n\n| what |")
	for _, c := range r.Columns {
		fmt.Fprintf(&b, " %s |", c.Name)
	}
	two := len(r.Columns) == 2
	if two {
		b.WriteString(" ratio |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(r.Columns)))
	if two {
		b.WriteString("---|")
	}
	b.WriteString("\n")
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "| %s |", row)
		var halves []float64
		for _, c := range r.Columns {
			values := slices.Sorted(slices.Values(c.Values[row]))
			if len(values) == 0 {
				b.WriteString(" – |")
				continue
			}
			halves = append(halves, report.Quantile(values, 0.5))
			fmt.Fprintf(&b, " %.1f / %.1f / %.1f |", report.Quantile(values, 0.5), report.Quantile(values, 0.9), values[len(values)-1])
		}
		switch {
		case two && len(halves) == 2 && halves[1] > 0:
			fmt.Fprintf(&b, " %.2f |", halves[0]/halves[1])
		case two:
			b.WriteString(" – |")
		}
		b.WriteString("\n")
	}
	return b.String()
}
