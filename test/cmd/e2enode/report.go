package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/suite"
)

// record is what is written down about one group's run.
type record struct {
	*runner
	group   group
	began   time.Time
	took    time.Duration
	results suite.Results
	// machine is what it ran on.
	machine string
	// chosen is how many tests there were to run, cut why not all of them did.
	chosen int
	cut    string
}

// writeDown appends the run to the results. A run of the kubelet updates the
// list of what it passes; one of polylet is compared with it, and fails when
// something is there that polylet does not pass.
func (r record) writeDown() error {
	results := filepath.Join(r.root, "docs", "results")
	list := filepath.Join(results, r.pages()+"-kubelet.txt")
	known, err := readPassed(list)
	if err != nil {
		return err
	}
	var missed []string
	if r.agent == agentKubelet {
		known[r.group.name] = updatePassed(known[r.group.name], r.results)
		err = writePassed(list, r.target(), known)
	} else {
		missed = notPassed(known[r.group.name], r.results)
	}
	if err != nil {
		return err
	}
	file, err := r.write(results, missed)
	if err != nil {
		return err
	}
	say("group %s: %s; written to %s", r.group.name, r.results.Counts(), file)
	for _, name := range missed {
		say("the kubelet passes, polylet does not: %s", name)
	}
	if len(missed) > 0 {
		return errFailed
	}
	return nil
}

// target is what of make this was, and pages how its files in docs/results begin.
func (r record) target() string {
	if r.vm {
		return "vm-suite"
	}
	return "e2e-node"
}

func (r record) pages() string { return r.target() }

// where follows what is said of the suite in a title.
func (r record) where() string {
	if r.vm {
		return " in a virtual machine with systemd and cgroup v2"
	}
	return ""
}

// passedTests are the names of what the kubelet passes, sorted, by group.
type passedTests map[string][]string

// readPassed reads "GROUP: NAME" lines; a file that is not there is empty.
func readPassed(path string) (passedTests, error) {
	known := passedTests{}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what the kubelet passes: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		group, name, ok := strings.Cut(lines.Text(), ": ")
		if ok && !strings.HasPrefix(group, "#") {
			known[group] = append(known[group], name)
		}
	}
	return known, lines.Err()
}

func writePassed(path, target string, known passedTests) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# What the kubelet %s passes of the upstream node suite, as GROUP: NAME.\n# Written by `make %s AGENT=kubelet`.\n", programs.Kubelet().Version, target)
	for _, g := range groups {
		for _, name := range known[g.name] {
			fmt.Fprintf(&b, "%s: %s\n", g.name, name)
		}
	}
	if err := os.WriteFile(path+".new", []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write what the kubelet passes: %w", err)
	}
	return os.Rename(path+".new", path)
}

// updatePassed takes a run of the kubelet into the list: what ran now counts as
// it went now, what did not run stays.
func updatePassed(known []string, results suite.Results) []string {
	ran := map[string]bool{}
	var names []string
	for _, r := range results {
		name := oneLineOf(r.Name)
		if r.State != "skipped" {
			ran[name] = true
		}
		if r.State == "passed" {
			names = append(names, name)
		}
	}
	for _, name := range known {
		if !ran[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// notPassed are the known tests that this run chose and that did not pass.
func notPassed(known []string, results suite.Results) []string {
	var missed []string
	for _, r := range results {
		name := oneLineOf(r.Name)
		if r.State != "passed" && slices.Contains(known, name) {
			missed = append(missed, name)
		}
	}
	return missed
}

// write appends the run to the file of its day and returns the file's path.
func (r record) write(dir string, missed []string) (string, error) {
	day := r.began.UTC().Format("2006-01-02")
	path := filepath.Join(dir, r.pages()+"-"+day+".md")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return "", fmt.Errorf("write the results: %w", err)
	}
	text := r.markdown(missed)
	if info, err := f.Stat(); err == nil && info.Size() == 0 {
		text = "# The node suite" + r.where() + ", " + day + "\n\nWritten by `make " + r.target() + "`, one part per run of a group: the upstream node suite " +
			programs.E2ENodeTest().Version + ".\n" + text
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write the results: %w", err)
	}
	return path, nil
}

func (r record) markdown(missed []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s UTC: %s, %s: %s\n\n", r.began.UTC().Format("15:04"), r.group.name, r.agent, r.results.Counts())
	if r.cut != "" {
		fmt.Fprintf(&b, "Cut short (%s): %d of %d tests ran.\n\n", r.cut, len(r.results), r.chosen)
	}
	fmt.Fprintf(&b, "- Agent: %s\n- Group: %s (%s), seed %d, %s\n", r.tested, r.group.name, r.group.about, r.seed, r.took.Round(time.Second))
	if r.focus != "" {
		fmt.Fprintf(&b, "- Focus: `%s`\n", r.focus)
	}
	if r.group.later != "" {
		fmt.Fprintf(&b, "- Asked for by name: %s\n", r.group.later)
	}
	fmt.Fprintf(&b, "- Machine: %s\n", r.machine)
	if r.agent == agentPolylet {
		fmt.Fprintf(&b, "- The kubelet passes and polylet does not: %d\n", len(missed))
	}
	if failed := r.results.Failed(); len(failed) > 0 {
		b.WriteString("\nFailed:\n\n")
		for _, f := range failed {
			note := ""
			if slices.Contains(missed, oneLineOf(f.Name)) {
				note = "; the kubelet passes"
			}
			fmt.Fprintf(&b, "- %s (%s, %s%s): %s\n", oneLineOf(f.Name), f.State, f.Where, note, suite.OneLine(f.Message))
		}
	}
	if skipped := r.results.In("skipped"); len(skipped) > 0 {
		b.WriteString("\nSkipped by themselves:\n\n" + byReason(skipped))
	}
	return b.String()
}

// byReason lists what skipped itself, one line for each reason: a reason is
// often that of twenty tests.
func byReason(skipped suite.Results) string {
	names := map[string][]string{}
	for _, s := range skipped {
		reason := suite.OneLine(s.Message)
		names[reason] = append(names[reason], oneLineOf(s.Name))
	}
	var b strings.Builder
	for _, reason := range slices.Sorted(maps.Keys(names)) {
		of := names[reason]
		if len(of) == 1 {
			fmt.Fprintf(&b, "- %s: %s\n", reason, of[0])
			continue
		}
		fmt.Fprintf(&b, "- %s: %d, from %s\n", reason, len(of), of[0])
	}
	return b.String()
}
