package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/polylet/polylet/test/harness/suite"
)

// The lines between these are written by this command, and by nobody else.
const (
	tableBegin = "<!-- conformance: written by make conformance -->"
	tableEnd   = "<!-- /conformance -->"
)

// groupName is the group that a test's name begins with: "[sig-node] Pods".
var groupName = regexp.MustCompile(`^\[sig-[a-z-]+\] (\[[^\]]*\] )*[A-Za-z]+( [A-Z][A-Za-z]*)*`)

// writeTables puts the outcome of the runs into docs/results/conformance.md of a
// checkout, and one line of it into its README.
func writeTables(root string, records []record) error {
	return errors.Join(
		between(filepath.Join(root, "docs", "results", "conformance.md"), table(records)),
		between(filepath.Join(root, "README.md"), oneLine(records)),
	)
}

// between puts text between the marks of a page, atomically.
func between(page, text string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("write the outcome of the conformance tests: %w", err)
	}
	before, rest, found := bytes.Cut(old, []byte(tableBegin))
	_, after, closed := bytes.Cut(rest, []byte(tableEnd))
	if !found || !closed {
		return fmt.Errorf("write the outcome of the conformance tests: %s has no lines %q and %q to put it between", page, tableBegin, tableEnd)
	}
	data := slices.Concat(before, []byte(tableBegin+"\n"+text+tableEnd), after)
	if err := os.WriteFile(page+".new", data, 0o644); err != nil {
		return fmt.Errorf("write the outcome of the conformance tests: %w", err)
	}
	return os.Rename(page+".new", page)
}

func oneLine(records []record) string {
	passed, tests := 0, 0
	for _, r := range rowsOf(records) {
		passed, tests = passed+r.passed, tests+r.tests
	}
	return fmt.Sprintf("Of the upstream suite's tests of [sig-node], %d of %d pass ([which, when and where](docs/results/conformance.md)).\n", passed, tests)
}

// row counts one group of tests over all runs: a test counts as passed when it
// passed in each of them.
type row struct {
	group          string
	tests, passed  int
	failed, itself []string
}

func table(records []record) string {
	rows := rowsOf(records)
	last := records[len(records)-1]
	var b strings.Builder
	fmt.Fprintf(&b, "`make conformance RUNS=%d`, %s: %s, %s. A test counts as passed when it passed in every run.\n\n",
		len(records), last.began.UTC().Format("2006-01-02"), last.agent, suite.DescribeMachine())
	b.WriteString("| tests of the upstream suite | passed | of |\n|---|---|---|\n")
	var passed, tests int
	var failed, itself []string
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", r.group, r.passed, r.tests)
		passed, tests = passed+r.passed, tests+r.tests
		failed, itself = append(failed, r.failed...), append(itself, r.itself...)
	}
	fmt.Fprintf(&b, "| **all** | **%d** | **%d** |\n\n", passed, tests)
	for _, name := range failed {
		fmt.Fprintf(&b, "- failed: %s\n", name)
	}
	for _, name := range itself {
		fmt.Fprintf(&b, "- skipped by the suite: %s\n", name)
	}
	for _, s := range last.skips {
		fmt.Fprintf(&b, "- left out: `%s`: %s\n", s.Expression, s.Reason)
	}
	return b.String()
}

func rowsOf(records []record) []row {
	states := map[string][]string{}
	for _, r := range records {
		for _, got := range r.results {
			states[got.Name] = append(states[got.Name], got.State)
		}
	}
	names := make([]string, 0, len(states))
	for name := range states {
		names = append(names, name)
	}
	slices.Sort(names)
	var rows []row
	for _, name := range names {
		group := groupName.FindString(name)
		if group == "" {
			group = "other"
		}
		at := slices.IndexFunc(rows, func(r row) bool { return r.group == group })
		if at < 0 {
			at, rows = len(rows), append(rows, row{group: group})
		}
		r := &rows[at]
		switch passed := countOf(states[name], "passed"); {
		case passed == len(records):
			r.tests, r.passed = r.tests+1, r.passed+1
		case countOf(states[name], "skipped") == len(states[name]):
			r.itself = append(r.itself, name)
		default:
			r.tests++
			r.failed = append(r.failed, fmt.Sprintf("%s (passed %d of %d)", name, passed, len(records)))
		}
	}
	return rows
}

func countOf(states []string, state string) int {
	n := 0
	for _, s := range states {
		if s == state {
			n++
		}
	}
	return n
}
