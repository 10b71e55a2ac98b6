package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/suite"
)

// record is what is written down about one run.
type record struct {
	options     options
	began       time.Time
	took        time.Duration
	agent       string
	skips       []suite.Skip
	results     suite.Results
	interrupted bool
}

func (r record) counts() string { return r.results.Counts() }

// write appends the run to the file of its day and returns the file's path.
func (r record) write(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write the results: %w", err)
	}
	day := r.began.UTC().Format("2006-01-02")
	path := filepath.Join(dir, "conformance-"+day+".md")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return "", fmt.Errorf("write the results: %w", err)
	}
	text := r.markdown()
	if info, err := f.Stat(); err == nil && info.Size() == 0 {
		text = "# Conformance, " + day + "\n\nWritten by `make conformance`, one part per run: the upstream suite " +
			programs.E2ETest().Version + " on one node, unless a part says another number.\n" + text
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write the results: %w", err)
	}
	return path, nil
}

func (r record) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s UTC: %s\n\n", r.began.UTC().Format("15:04"), r.counts())
	if r.interrupted {
		b.WriteString("Interrupted: this is not the whole focus.\n\n")
	}
	fmt.Fprintf(&b, "- Agent: %s\n- Focus: `%s`, %d at once, %s\n", r.agent, r.options.focus, r.options.procs, r.took.Round(time.Second))
	if r.options.nodes > 1 {
		fmt.Fprintf(&b, "- Nodes: %d\n", r.options.nodes)
	}
	if gates := r.options.gated(); len(gates) > 0 {
		fmt.Fprintf(&b, "- Feature gates that are on: %s\n", strings.Join(gates, ", "))
	}
	if r.options.services {
		b.WriteString("- With kube-proxy and CoreDNS\n")
	}
	fmt.Fprintf(&b, "- Machine: %s\n", suite.DescribeMachine())
	if failed := r.results.Failed(); len(failed) > 0 {
		b.WriteString("\nFailed:\n\n")
		for _, f := range failed {
			fmt.Fprintf(&b, "- %s (%s, %s)\n  - %s\n", f.Name, f.State, f.Where, suite.OneLine(f.Message))
		}
	}
	if skipped := r.results.In("skipped"); len(skipped) > 0 {
		b.WriteString("\nSkipped by themselves:\n\n")
		for _, s := range skipped {
			fmt.Fprintf(&b, "- %s: %s\n", s.Name, suite.OneLine(s.Message))
		}
	}
	if len(r.skips) > 0 {
		fmt.Fprintf(&b, "\nLeft out (%s):\n\n", r.options.skipFile)
		for _, s := range r.skips {
			fmt.Fprintf(&b, "- `%s`: %s\n", s.Expression, s.Reason)
		}
	}
	return b.String()
}
