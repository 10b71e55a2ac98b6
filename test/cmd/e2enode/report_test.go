package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/harness/suite"
)

func TestWhatTheKubeletPassesIsUpdatedByWhatRanAndKeepsTheRest(t *testing.T) {
	known := []string{"a", "b", "d"}
	got := updatePassed(known, suite.Results{
		{Name: "a", State: "failed"}, {Name: "c\n  of two lines", State: "passed"}, {Name: "d", State: "skipped"}, {Name: "e", State: "timedout"},
	})
	if want := []string{"b", "c of two lines", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPolyletIsHeldToWhatTheKubeletPassesOfWhatRan(t *testing.T) {
	root := t.TempDir()
	results := filepath.Join(root, "docs", "results")
	if err := os.MkdirAll(results, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writePassed(filepath.Join(results, "e2e-node-kubelet.txt"), "e2e-node", passedTests{"par": {"a: x", "b", "c", "d"}, "lock": {"a"}}); err != nil {
		t.Fatal(err)
	}
	write := func(all suite.Results) (string, error) {
		r := record{
			runner: &runner{options: options{agent: agentPolylet, seed: 1}, root: root, tested: "polylet, commit abc"},
			group:  group{name: "par", about: "all"}, began: time.Unix(0, 0), results: all, chosen: 9, cut: "Suite Timeout Elapsed",
		}
		err := r.writeDown()
		text, readErr := os.ReadFile(filepath.Join(results, "e2e-node-1970-01-01.md"))
		if readErr != nil {
			t.Fatal(readErr)
		}
		return string(text), err
	}
	if text, err := write(suite.Results{{Name: "a: x", State: "passed"}, {Name: "z", State: "failed", Message: "broken"}}); err != nil {
		t.Errorf("got %v, want no error: what fails is not in the list\n%s", err, text)
	}
	text, err := write(suite.Results{
		{Name: "a: x", State: "passed"},
		{Name: "b", State: "timedout", Message: "late"},
		{Name: "c", State: "skipped", Message: "no such"},
		{Name: "e", State: "skipped", Message: "no cgroup v2"},
		{Name: "f", State: "skipped", Message: "no cgroup\nv2"},
	})
	if err == nil {
		t.Error("got no error for two tests that the kubelet passes and polylet does not")
	}
	for _, part := range []string{
		"polylet does not: 0\n", "polylet does not: 2\n", "- b (timedout, ; the kubelet passes): late\n", "- z (failed, ): broken\n",
		"- no such: c\n", "- no cgroup v2: 2, from e\n",
		"## 00:00 UTC: par, polylet: 1 passed, 1 failed, 3 skipped by themselves\n", "commit abc", "seed 1",
		"Cut short (Suite Timeout Elapsed): 2 of 9 tests ran.\n", "Cut short (Suite Timeout Elapsed): 5 of 9 tests ran.\n",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
}

func TestARunInAMachineHasPagesOfItsOwn(t *testing.T) {
	root := t.TempDir()
	results := filepath.Join(root, "docs", "results")
	if err := os.MkdirAll(results, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writePassed(filepath.Join(results, "e2e-node-kubelet.txt"), "e2e-node", passedTests{"serial": {"x"}}); err != nil {
		t.Fatal(err)
	}
	run := func(agent, state string) error {
		return record{
			runner: &runner{options: options{agent: agent, vm: true}, root: root}, machine: "one of its own",
			group: group{name: "serial"}, began: time.Unix(0, 0), results: suite.Results{{Name: "x", State: state}},
		}.writeDown()
	}
	if err := run(agentPolylet, "failed"); err != nil {
		t.Errorf("got %v: it was held to what the kubelet passes elsewhere", err)
	}
	if err := run(agentKubelet, "passed"); err != nil {
		t.Fatal(err)
	}
	if err := run(agentPolylet, "failed"); !errors.Is(err, errFailed) {
		t.Errorf("got %v, want %v", err, errFailed)
	}
	text, err := os.ReadFile(filepath.Join(results, "vm-suite-1970-01-01.md"))
	if err != nil || !strings.Contains(string(text), "- Machine: one of its own\n") {
		t.Errorf("%v, %s", err, text)
	}
}

func TestASuiteWhosePreparationFailedHasNotStarted(t *testing.T) {
	for want, all := range map[bool]suite.Results{
		false: {{Name: "SynchronizedBeforeSuite", State: "failed"}},
		true:  {{Name: "SynchronizedAfterSuite", State: "failed"}, {Name: "a", State: "passed"}},
	} {
		if got := started(all); got != want {
			t.Errorf("%v: got %v", all, got)
		}
	}
	if started(nil) {
		t.Error("an empty report counts as started")
	}
}
