package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/test/harness/peers"
)

// result is one test of the suite's report.
type result struct {
	name, state, message, where string
	took                        time.Duration
}

// results are the tests that the focus chose.
type results []result

// readResults reads ginkgo's report and keeps the tests that were to run.
func readResults(path string) (results, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the suite's report: %w; see suite.log beside it", err)
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			RunTime                 time.Duration
			Failure                 struct {
				Message  string
				Location struct {
					FileName   string
					LineNumber int
				}
			}
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("read the suite's report %s: %w", path, err)
	}
	var all results
	for _, s := range suites {
		for _, r := range s.SpecReports {
			if r.State == "pending" || r.State == "" || r.State == "skipped" && r.Failure.Message == "" {
				continue // not chosen by the focus
			}
			if r.LeafNodeType != "It" && r.State == "passed" {
				continue // the suite's own preparation
			}
			name := strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")
			if r.LeafNodeText == "" {
				name = r.LeafNodeType
			}
			all = append(all, result{
				name: name, state: r.State, message: r.Failure.Message, took: r.RunTime,
				where: fmt.Sprintf("%s:%d", filepath.Base(r.Failure.Location.FileName), r.Failure.Location.LineNumber),
			})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	return all, nil
}

// in returns the tests with one of these states.
func (all results) in(states ...string) results {
	var some results
	for _, r := range all {
		for _, s := range states {
			if r.state == s {
				some = append(some, r)
			}
		}
	}
	return some
}

func (all results) failed() results {
	var some results
	for _, r := range all {
		if r.state != "passed" && r.state != "skipped" {
			some = append(some, r)
		}
	}
	return some
}

// record is what is written down about one run.
type record struct {
	options     options
	began       time.Time
	took        time.Duration
	agent       string
	skips       []skip
	results     results
	interrupted bool
}

func (r record) counts() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped by themselves",
		len(r.results.in("passed")), len(r.results.failed()), len(r.results.in("skipped")))
}

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
			peers.E2ETest().Version + " on a one-node cluster.\n" + text
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
	if r.options.services {
		b.WriteString("- With kube-proxy and CoreDNS\n")
	}
	fmt.Fprintf(&b, "- Machine: %s\n", describeMachine())
	if failed := r.results.failed(); len(failed) > 0 {
		b.WriteString("\nFailed:\n\n")
		for _, f := range failed {
			fmt.Fprintf(&b, "- %s (%s, %s)\n  - %s\n", f.name, f.state, f.where, oneLine(f.message))
		}
	}
	if skipped := r.results.in("skipped"); len(skipped) > 0 {
		b.WriteString("\nSkipped by themselves:\n\n")
		for _, s := range skipped {
			fmt.Fprintf(&b, "- %s: %s\n", s.name, oneLine(s.message))
		}
	}
	if len(r.skips) > 0 {
		fmt.Fprintf(&b, "\nLeft out (%s):\n\n", r.options.skipFile)
		for _, s := range r.skips {
			fmt.Fprintf(&b, "- `%s`: %s\n", s.expression, s.reason)
		}
	}
	return b.String()
}

// oneLine shortens a message of the suite to what fits into a list.
func oneLine(message string) string {
	const limit = 300
	text := []rune(strings.Join(strings.Fields(message), " "))
	if len(text) > limit {
		return string(text[:limit]) + " …"
	}
	return string(text)
}

func describeMachine() string {
	kernel, cgroups := "unknown kernel", "cgroup v1"
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		kernel = "Linux " + unix.ByteSliceToString(name.Release[:])
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		cgroups = "cgroup v2"
	}
	return fmt.Sprintf("%d processors, %s, %s, containerd %s", runtime.NumCPU(), kernel, cgroups, peers.Containerd().Version)
}
