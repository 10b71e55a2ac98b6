package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/harness/suite"
)

const sample = `[{"SpecReports":[
 {"LeafNodeType":"SynchronizedBeforeSuite","State":"passed"},
 {"ContainerHierarchyTexts":["[sig-node] Pods"],"LeafNodeType":"It","LeafNodeText":"should pass","State":"passed","RunTime":5},
 {"ContainerHierarchyTexts":["[sig-node] Pods"],"LeafNodeType":"It","LeafNodeText":"is not in the focus","State":"skipped"},
 {"ContainerHierarchyTexts":["[sig-node] Pods"],"LeafNodeType":"It","LeafNodeText":"wants two nodes","State":"skipped","Failure":{"Message":"one node"}},
 {"ContainerHierarchyTexts":["[sig-node] Pods"],"LeafNodeType":"It","LeafNodeText":"hangs","State":"timedout","Failure":{"Message":"a\n b","Location":{"FileName":"/x/pods.go","LineNumber":7}}},
 {"LeafNodeType":"SynchronizedAfterSuite","State":"failed"}]}]`

func TestARecordNamesEveryTestThatDidNotPass(t *testing.T) {
	path := filepath.Join(t.TempDir(), reportName)
	if err := os.WriteFile(path, []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := suite.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	r := record{options: options{focus: "x", procs: 1, nodes: 2, gates: "CSIVolumeHealth,NodeSwap"}, began: time.Unix(0, 0), results: all}
	if got, want := r.counts(), "1 passed, 2 failed, 1 skipped by themselves"; got != want {
		t.Errorf("counted %q, want %q", got, want)
	}
	dir := t.TempDir()
	for range 2 {
		if path, err = r.write(dir); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for part, times := range map[string]int{
		"# Conformance, 1970-01-01":                     1,
		"- [sig-node] Pods hangs (timedout, pods.go:7)": 2,
		"  - a b\n":                                   2,
		"SynchronizedAfterSuite (failed":              2,
		"- [sig-node] Pods wants two nodes: one node": 2,
		"- Nodes: 2\n":                                2,
		"- Feature gates that are on: CSIVolumeHealth, NodeSwap\n": 2,
		"is not in the focus":                               0,
		"## 00:00 UTC: 1 passed, 2 failed, 1 skipped by th": 2,
	} {
		if got := strings.Count(string(text), part); got != times {
			t.Errorf("%q is there %d times, want %d, in\n%s", part, got, times, text)
		}
	}
}
