package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/polylet/polylet/test/harness/workspace"
)

func TestTheDocumentOfTheMetricsIsWhatTheProcessesRegister(t *testing.T) {
	root, err := workspace.Root()
	if err != nil {
		t.Fatal(err)
	}
	want, err := document(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil || string(got) != string(want) {
		t.Errorf("docs/metrics.md is not current (%v); run make docs", err)
	}
}

func TestADisagreementIsFound(t *testing.T) {
	have := map[string]map[string]family{"/metrics": {
		"kubelet_a": {name: "kubelet_a", kind: "gauge"}, "kubelet_b": {name: "kubelet_b", kind: "counter"}, "polylet_c": {name: "polylet_c", kind: "gauge"},
	}}
	row := func(name, kind string) []string { return []string{"/metrics", name, kind, "", ""} }
	for what, tc := range map[string]struct {
		wanted, absent [][]string
		fine           bool
	}{
		"all as it is":              {[][]string{row("kubelet_a", "gauge"), row("kubelet_b", "counter"), row("x", "gauge")}, [][]string{{"x", "why"}}, true},
		"another type":              {[][]string{row("kubelet_a", "counter"), row("kubelet_b", "counter")}, nil, false},
		"absent without a reason":   {[][]string{row("kubelet_a", "gauge"), row("kubelet_b", "counter"), row("x", "gauge")}, nil, false},
		"present with a reason":     {[][]string{row("kubelet_a", "gauge"), row("kubelet_b", "counter")}, [][]string{{"kubelet_b", "why"}}, false},
		"a name of our own":         {[][]string{row("kubelet_a", "gauge")}, nil, false},
		"a reason that nobody uses": {[][]string{row("kubelet_a", "gauge"), row("kubelet_b", "counter")}, [][]string{{"y", "why"}}, false},
	} {
		if err := check(have, tc.wanted, tc.absent); (err == nil) != tc.fine {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestBucketsOfWhichOnlyTheEndsAreKnownAreCompared(t *testing.T) {
	if !sameBuckets("1 2 3600", "1..3600/3") || sameBuckets("1 3600", "1..3600/3") || sameBuckets("1 2 3", "1 2 4") || !sameBuckets("", "") {
		t.Error("buckets are not compared")
	}
}
