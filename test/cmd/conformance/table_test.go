package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/harness/suite"
)

func TestTheTableCountsATestAsPassedOnlyWhenItPassedInEveryRun(t *testing.T) {
	run := func(states ...string) record {
		names := []string{"[sig-node] Pods [Feature:x] one", "[sig-node] Probing container two", "[sig-node] Pods three"}
		r := record{began: time.Unix(0, 0), agent: "polylet, commit abc", skips: []suite.Skip{{Expression: "Pods.*five", Reason: "no such device"}}}
		for i, state := range states {
			r.results = append(r.results, suite.Result{Name: names[i], State: state})
		}
		return r
	}
	root := checkout(t, "before\n"+tableBegin+"\nold\n"+tableEnd+"\nafter\n")
	if err := writeTables(root, []record{run("passed", "passed", "skipped"), run("failed", "passed", "skipped")}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "docs", "results", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, part := range []string{
		"before\n" + tableBegin + "\n`make conformance RUNS=2`, 1970-01-01: polylet, commit abc",
		"| [sig-node] Pods | 0 | 1 |\n", "| [sig-node] Probing | 1 | 1 |\n", "| **all** | **1** | **2** |\n",
		"- failed: [sig-node] Pods [Feature:x] one (passed 1 of 2)\n",
		"- skipped by the suite: [sig-node] Pods three\n", "- left out: `Pods.*five`: no such device\n" + tableEnd + "\nafter\n",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
	if strings.Contains(text, "old") {
		t.Errorf("what stood there before is still there:\n%s", text)
	}
	line, err := os.ReadFile(filepath.Join(root, "README.md"))
	if want := "before\n" + tableBegin + "\nOf the upstream suite's tests of [sig-node], 1 of 2 pass "; err != nil || !strings.HasPrefix(string(line), want) || !strings.HasSuffix(string(line), "\n"+tableEnd+"\nafter\n") {
		t.Errorf("the README says %q, %v", line, err)
	}
}

// checkout is one whose pages have this text.
func checkout(t *testing.T, text string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "docs", "results"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"README.md", "docs/results/conformance.md"} {
		if err := os.WriteFile(filepath.Join(root, page), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestATableWithoutAPlaceInThePageIsRefused(t *testing.T) {
	if err := writeTables(checkout(t, "no place\n"), []record{{}}); err == nil || !strings.Contains(err.Error(), tableBegin) {
		t.Errorf("got %v, want an error that names the line that is missing", err)
	}
}
