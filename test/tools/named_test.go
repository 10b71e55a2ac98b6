package tools_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// go test passes when its pattern picks no test: whoever mistypes RUN would be told
// that all is well.
func TestAPatternThatPicksNoTestIsRefusedWithTheNamesThereAre(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"first/a_test.go":  "package first\n\nfunc TestMain(m *testing.M) {}\n\nfunc TestAPodRuns(t *testing.T) {}\n\nfunc testHelper(t *testing.T) {}\n",
		"second/b_test.go": "package second\n\nfunc TestAPodEnds(t *testing.T) {}\n\nfunc FuzzNames(f *testing.F) {}\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, passes := range map[string]bool{
		".":                     true,
		"TestAPodRuns":          true,
		"TestAPodEnds":          true, // only the second has it
		"^FuzzNames$":           true,
		"Pod(Runs|Sleeps)":      true,
		"TestAPodRuns/deeply":   true,
		"Typo|TestAPodRuns/x":   true,
		"Typo":                  false,
		"TestMain":              false,
		"testHelper":            false,
		"Typo/TestAPodRuns":     false,
		"Typo/a|Nothing/either": false,
		"[":                     true, // go test says what is wrong with it
	} {
		cmd := exec.CommandContext(t.Context(), "../../tools/named", pattern, filepath.Join(dir, "first"), filepath.Join(dir, "second"))
		said, err := cmd.CombinedOutput()
		if (err == nil) != passes {
			t.Errorf("%q: %v\n%s", pattern, err, said)
		}
		for _, name := range []string{"TestAPodRuns", "TestAPodEnds", "FuzzNames"} {
			if !passes && !strings.Contains(string(said), "  "+name+"\n") {
				t.Errorf("%q: it does not say that there is %s:\n%s", pattern, name, said)
			}
		}
		if passes && len(said) > 0 {
			t.Errorf("%q: it says %s", pattern, said)
		}
	}
}
