// Command conformance is behind `make conformance`: it runs the upstream
// end-to-end suite against a one-node cluster of this checkout's polylet and
// writes down what passed. It must never use a cluster that it did not start,
// and never leave a failure out of its report.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/polylet/polylet/test/harness/suite"
	"github.com/polylet/polylet/test/harness/workspace"
)

// nodeFocus is what a node agent is measured by: all of the node group's tests
// that every cluster or every node must pass.
const nodeFocus = `\[sig-node\].*\[(Node)?Conformance\]`

// errFailed says that the suite ran and not everything passed.
var errFailed = errors.New("not every test passed")

// options are the command line's flags.
type options struct {
	focus, skipFile, agent string
	gates                  string
	procs, runs, nodes     int
	timeout                time.Duration
	services, csi          bool
	root, artifacts        string
}

// gated are the feature gates that are on.
func (o options) gated() []string {
	return strings.FieldsFunc(o.gates, func(r rune) bool { return r == ',' })
}

// overrides are the fields that a node's configuration has other than by default.
func (o options) overrides() map[string]any {
	on := map[string]any{}
	for _, gate := range o.gated() {
		on[gate] = true
	}
	if len(on) == 0 {
		return map[string]any{}
	}
	return map[string]any{"featureGates": on}
}

func main() {
	var o options
	flag.StringVar(&o.focus, "focus", nodeFocus, "`regexp` of the tests to run; the default's result goes into docs/results/conformance.md and the README too")
	flag.StringVar(&o.skipFile, "skip-file", "test/conformance/skip.txt", "`file` with what is left out, and why; relative to the checkout")
	flag.StringVar(&o.agent, "agent", "polylet", `"polylet", or "kubelet" to see what the upstream agent does on this machine`)
	flag.IntVar(&o.procs, "procs", 4, "`number` of tests that run at once")
	flag.IntVar(&o.runs, "runs", 1, "`number` of runs in a row on the same cluster")
	flag.IntVar(&o.nodes, "nodes", 1, "`number` of nodes; those after the first have namespaces of their own, and no kube-proxy")
	flag.BoolVar(&o.services, "services", false, "run kube-proxy and CoreDNS too, which tests of services and of names need; one such run at a time on a machine")
	flag.BoolVar(&o.csi, "csi", false, "have the images of the suite's CSI drivers, for [sig-storage] CSI Mock and [Driver: csi-hostpath]; implies -services")
	flag.StringVar(&o.gates, "gates", "", "feature `gates` that the apiserver and the nodes have on, with commas between them, for tests of what is off by default")
	flag.DurationVar(&o.timeout, "timeout", 2*time.Hour, "`time` after which the suite is interrupted")
	flag.Parse()
	o.services = o.services || o.csi // its sidecars call the apiserver by its service
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.agent != "polylet" && o.agent != "kubelet" {
		return fmt.Errorf("no agent %q; use polylet or kubelet", o.agent)
	}
	if o.services && o.nodes > 1 {
		return errors.New("kube-proxy and DNS are for one node only; leave out -services or -nodes")
	}
	var err error
	if o.root, err = workspace.Root(); err != nil {
		return err
	}
	began := time.Now()
	o.artifacts = filepath.Join(o.root, ".cache", "conformance", began.UTC().Format("20060102-150405"))
	if err := os.MkdirAll(o.artifacts, 0o755); err != nil {
		return fmt.Errorf("make a directory for the logs: %w", err)
	}
	skips, err := suite.ReadSkips(filepath.Join(o.root, o.skipFile))
	if err != nil {
		return err
	}
	m, err := newMachine(ctx, o)
	if err != nil {
		return err
	}
	defer m.stop()
	err = m.runAll(ctx, o, skips)
	m.keepLogs(o.artifacts)
	return err
}

// runAll runs the suite as often as was asked and writes each run down. It ends
// early when a run was interrupted; a failure does not end it.
func (m *machine) runAll(ctx context.Context, o options, skips []suite.Skip) error {
	var records []record
	var failed error
	for n := range o.runs {
		if o.runs > 1 {
			say("run %d of %d", n+1, o.runs)
		}
		r, err := m.runOnce(ctx, o, skips, n)
		if err != nil {
			return errors.Join(failed, err)
		}
		records = append(records, r)
		if len(r.results.Failed()) > 0 {
			failed = errFailed
		}
		if r.interrupted {
			return errors.Join(failed, ctx.Err())
		}
	}
	if o.agent == "polylet" && o.focus == nodeFocus {
		if err := writeTables(o.root, records); err != nil {
			return errors.Join(failed, err)
		}
	}
	return failed
}

func (m *machine) runOnce(ctx context.Context, o options, skips []suite.Skip, n int) (record, error) {
	logs := o.artifacts
	o.artifacts = filepath.Join(logs, fmt.Sprintf("run-%d", n+1))
	if err := os.MkdirAll(o.artifacts, 0o755); err != nil {
		return record{}, fmt.Errorf("make a directory for the logs: %w", err)
	}
	began := time.Now()
	ended, suiteErr := m.runSuite(ctx, o, skips)
	results, err := suite.Read(filepath.Join(o.artifacts, reportName))
	if err != nil {
		return record{}, errors.Join(suiteErr, err)
	}
	r := record{options: o, began: began, took: ended.Sub(began), agent: m.tested, skips: skips, results: results, interrupted: ctx.Err() != nil}
	file, err := r.write(filepath.Join(o.root, "docs", "results"))
	if err != nil {
		return record{}, errors.Join(suiteErr, err)
	}
	say("%s; written to %s, logs in %s", r.counts(), file, o.artifacts)
	if suiteErr != nil && len(results.Failed()) == 0 && !r.interrupted {
		return record{}, suiteErr
	}
	return r, nil
}

// say prints one line of progress.
func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }
