// Package suite reads what the upstream end-to-end suites report and the files
// that say what of them is left out. It must never leave a failure out.
package suite

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"
)

// Result is one test of a suite's report.
type Result struct {
	// Name is the test's full text.
	Name string
	// State is ginkgo's word: passed, failed, skipped, timedout, panicked,
	// interrupted, aborted.
	State string
	// Message is the failure's, or why the test skipped itself.
	Message string
	// Where is FILE:LINE of the failure.
	Where string
	// Took is how long the test ran.
	Took time.Duration
}

// Results are the tests that the focus chose, by name.
type Results []Result

// spec is what is read of one entry of ginkgo's report.
type spec struct {
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

// Run is what a whole report says.
type Run struct {
	Results Results
	// Chosen is how many tests the focus chose.
	Chosen int
	// Cut says why the suite ended before its last test; empty when it did not.
	Cut string
}

// Read reads ginkgo's JSON report and keeps the tests that were to run, and of
// the suite's own preparation what did not pass.
func Read(path string) (Results, error) {
	run, err := ReadRun(path)
	return run.Results, err
}

// ReadRun is Read with what the report says of the run as a whole.
func ReadRun(path string) (Run, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Run{}, fmt.Errorf("read the suite's report: %w; see suite.log beside it", err)
	}
	var suites []struct {
		SpecReports                []spec
		SpecialSuiteFailureReasons []string
		PreRunStats                struct{ SpecsThatWillRun int }
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return Run{}, fmt.Errorf("read the suite's report %s: %w", path, err)
	}
	var run Run
	for _, s := range suites {
		run.Chosen += s.PreRunStats.SpecsThatWillRun
		run.Cut += strings.Join(s.SpecialSuiteFailureReasons, ", ")
		for _, r := range s.SpecReports {
			if r.wanted() {
				run.Results = append(run.Results, r.result())
			}
		}
	}
	all := run.Results
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return run, nil
}

func (r spec) wanted() bool {
	if r.State == "pending" || r.State == "" || r.State == "skipped" && r.Failure.Message == "" {
		return false // not chosen by the focus
	}
	return r.LeafNodeType == "It" || r.State != "passed"
}

func (r spec) result() Result {
	name := strings.Join(append(slices.Clone(r.ContainerHierarchyTexts), r.LeafNodeText), " ")
	if r.LeafNodeText == "" {
		name = r.LeafNodeType
	}
	return Result{
		Name: name, State: r.State, Message: r.Failure.Message, Took: r.RunTime,
		Where: fmt.Sprintf("%s:%d", filepath.Base(r.Failure.Location.FileName), r.Failure.Location.LineNumber),
	}
}

// In returns the tests with one of these states.
func (all Results) In(states ...string) Results {
	var some Results
	for _, r := range all {
		if slices.Contains(states, r.State) {
			some = append(some, r)
		}
	}
	return some
}

// Failed returns what neither passed nor skipped itself.
func (all Results) Failed() Results {
	var some Results
	for _, r := range all {
		if r.State != "passed" && r.State != "skipped" {
			some = append(some, r)
		}
	}
	return some
}

// Counts says in one line how it went.
func (all Results) Counts() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped by themselves",
		len(all.In("passed")), len(all.Failed()), len(all.In("skipped")))
}

// Skip is one line of a skip file.
type Skip struct{ Expression, Reason string }

// ReadSkips reads lines of the form "REGEXP # REASON".
func ReadSkips(path string) ([]Skip, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read what to skip: %w", err)
	}
	defer f.Close()
	var skips []Skip
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		expression, reason, _ := strings.Cut(line, " # ")
		s := Skip{strings.TrimSpace(expression), strings.TrimSpace(reason)}
		if s.Reason == "" {
			return nil, fmt.Errorf("%s line %d: no reason; write it behind the expression, after ' # '", path, n)
		}
		if _, err := regexp.Compile(s.Expression); err != nil {
			return nil, fmt.Errorf("%s line %d: %w", path, n, err)
		}
		skips = append(skips, s)
	}
	return skips, lines.Err()
}

// OneLine shortens a message of the suite to what fits into a list.
func OneLine(message string) string {
	const limit = 300
	text := []rune(strings.Join(strings.Fields(message), " "))
	if len(text) > limit {
		return string(text[:limit]) + " …"
	}
	return string(text)
}
