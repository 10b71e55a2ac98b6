package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASkipWithoutAReasonIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"# a comment\n\nPods # no such thing here\n": "",
		"Pods\n":          "line 1: no reason",
		"\n( # because\n": "line 2: error parsing regexp",
	} {
		path := filepath.Join(t.TempDir(), "skip.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		skips, err := ReadSkips(path)
		switch {
		case want == "" && (err != nil || len(skips) != 1 || skips[0] != Skip{"Pods", "no such thing here"}):
			t.Errorf("%q: got %v, %v", text, skips, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

func TestACutRunSaysSoAndHowMuchThereWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	const report = `[{"SpecialSuiteFailureReasons":["Suite Timeout Elapsed"],"PreRunStats":{"SpecsThatWillRun":3},"SpecReports":[
 {"LeafNodeType":"It","LeafNodeText":"b","State":"passed"},
 {"LeafNodeType":"It","LeafNodeText":"a","State":"interrupted","Failure":{"Message":"cut"}},
 {"LeafNodeType":"It","LeafNodeText":"c","State":"skipped"}]}]`
	if err := os.WriteFile(path, []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	run, err := ReadRun(path)
	if err != nil || run.Chosen != 3 || run.Cut != "Suite Timeout Elapsed" || len(run.Results) != 2 || run.Results[0].Name != "a" {
		t.Errorf("got %+v, %v", run, err)
	}
}
