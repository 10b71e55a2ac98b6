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
	readme := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(readme, []byte("before\n"+tableBegin+"\nold\n"+tableEnd+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeTable(readme, []record{run("passed", "passed", "skipped"), run("failed", "passed", "skipped")}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(readme)
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
}

func TestATableWithoutAPlaceInTheReadmeIsRefused(t *testing.T) {
	readme := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(readme, []byte("no place\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeTable(readme, []record{{}}); err == nil || !strings.Contains(err.Error(), tableBegin) {
		t.Errorf("got %v, want an error that names the line that is missing", err)
	}
}
