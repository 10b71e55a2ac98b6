package scale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"

	"github.com/polylet/polylet/test/bench/internal/profile"
	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/harness/node"
)

// Rows of the scale report.
const (
	rowStartRate = "pods started per second"
	rowStopRate  = "pods stopped per second"
	rowStartCPU  = "agent's CPU per start, ms"
	rowStopCPU   = "agent's CPU per stop, ms"
	rowIdleCPU   = "idle: agent's CPU per minute, s"
	rowIdleCalls = "idle: runtime calls per second"
	rowPSS       = "memory (PSS) of all processes, MiB"
	rowRestart   = "container exit → running again, p50, ms"
)

// scaleWanted is what polylet's figure should be as a share of the kubelet's.
var scaleWanted = map[string]string{
	rowStartRate: "≥ 4", rowStopRate: "≥ 4", rowStartCPU: "≤ 0.35", rowStopCPU: "≤ 0.35",
	rowIdleCPU: "≤ 0.25", rowIdleCalls: "≤ 0.1", rowPSS: "≤ 1.0", rowRestart: "≤ 0.1",
}

// table is a table in Markdown with one row per figure: the median over
// the rounds for each column, and polylet's share of the kubelet's.
func table(s Settings, r *report.Results, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %d pods per node on a fake runtime, %s\n\n", s.Pods, now.UTC().Format("2006-01-02 15:04 UTC"))
	fmt.Fprintf(&b, "Commit %s. %s. %d rounds, agents in turn; a runtime without processes that answers at once, kube-apiserver 1.36.3 and etcd 3.6.8 on the same machine.",
		report.Commit(), report.Machine(), s.Rounds)
	if s.Trouble != "" {
		fmt.Fprintf(&b, " The runtime ran with %s.", s.Trouble)
	}
	b.WriteString(" Figures are medians over the rounds, each round's in parentheses; the share is polylet's figure by the kubelet's.\n\n| what |")
	for _, c := range r.Columns {
		fmt.Fprintf(&b, " %s |", c.Name)
	}
	shares := shares(r)
	for _, p := range shares {
		fmt.Fprintf(&b, " share%s |", p.of)
	}
	b.WriteString(" wanted |\n|---|" + strings.Repeat("---|", len(r.Columns)+len(shares)+1) + "\n")
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, c := range r.Columns {
			fmt.Fprintf(&b, " %s%s |", scaleFigure(median(c.Values[row])), each(c.Values[row]))
		}
		for _, p := range shares {
			fmt.Fprintf(&b, " %s |", share(median(p.polylet.Values[row]), median(p.kubelet.Values[row])))
		}
		fmt.Fprintf(&b, " %s |\n", scaleWanted[row])
	}
	return b.String()
}

// pair is two columns to be compared.
type pair struct {
	of               string // what they have in common, e.g. ", limits raised"
	polylet, kubelet *report.Column
}

// shares pairs the columns that differ by nothing but the agent.
func shares(r *report.Results) []pair {
	var pairs []pair
	for _, c := range r.Columns {
		of, ok := strings.CutPrefix(c.Name, "polylet")
		if !ok {
			continue
		}
		i := slices.IndexFunc(r.Columns, func(other *report.Column) bool { return other.Name == "kubelet"+of })
		if i >= 0 {
			pairs = append(pairs, pair{of: of, polylet: c, kubelet: r.Columns[i]})
		}
	}
	return pairs
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// each lists what each of them gave, where there were several: on a machine that
// others use they may lie far apart.
func each(values []float64) string {
	if len(values) < 2 {
		return ""
	}
	var text []string
	for _, v := range values {
		text = append(text, scaleFigure(v))
	}
	return " (" + strings.Join(text, ", ") + ")"
}

// scaleFigure has three digits that count.
func scaleFigure(v float64) string {
	switch {
	case v == 0:
		return "–"
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func share(a, b float64) string {
	if a == 0 || b == 0 {
		return "–"
	}
	return scaleFigure(a / b)
}

// cpuProfileSeconds covers most of a burst.
const cpuProfileSeconds = 10

// profileCPU saves what podsync does in the next seconds as podsync-WHEN.cpu,
// when the command line names a directory for profiles. That costs a little, so
// the figures of such a run are not to be quoted.
func profileCPU(ctx context.Context, s Settings, st *scaleStage, when string) error {
	if s.Profiles == "" || st.Node.SocketDir == "" || len(st.Node.Processes) == 1 {
		return nil
	}
	if err := os.MkdirAll(s.Profiles, 0o755); err != nil {
		return err
	}
	path := filepath.Join(s.Profiles, node.Podsync+"-"+when+".cpu")
	socket := filepath.Join(st.Node.SocketDir, node.Podsync+".sock")
	if err := profile.Save(ctx, socket, path, &commonv1.GetProfileRequest{Name: "profile", Seconds: cpuProfileSeconds}); err != nil {
		return fmt.Errorf("CPU profile of podsync: %w", err)
	}
	return nil
}
