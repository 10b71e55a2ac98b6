// Package tools_test runs the scripts of tools/ that have rules of their own. It must
// never change the checkout that it runs in.
package tools_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// module is one that fails in each way that go test knows.
var module = map[string]string{
	"go.mod": "module fails\n\ngo 1.26\n",
	"a/a_test.go": `package a

import (
	"testing"
	"time"
)

func step(t *testing.T) { t.Logf("it is Ready after %s", 1203*time.Millisecond) }

func TestFine(t *testing.T) { t.Log("said by who passed") }

func TestBad(t *testing.T) {
	t.Errorf("the first thing is wrong\nin two lines")
	for range 100 {
		step(t)
	}
	t.Run("part", func(t *testing.T) { t.Error("the part is wrong") })
	t.Run("fine", func(t *testing.T) { t.Log("said by a part that passed") })
}

func TestLater(t *testing.T) {
	for range 100 {
		t.Log("said later")
	}
}
`,
	"b/b_test.go": `package b

import "testing"

func TestPanics(*testing.T) { panic("nobody caught this") }
`,
	"c/c_test.go": `package c

import "testing"

func TestUnbuilt(*testing.T) { undefinedThing() }
`,
	"d/d_test.go": `package d

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	m.Run()
	fmt.Println("a goroutine was left")
	os.Exit(1)
}

func TestFine(*testing.T) {}
`,
}

// Whoever sees only what stands behind a test's name, or only the end, sees why it
// failed.
func TestWhatAFailedTestSaidStandsBehindItsNameAndAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	for name, text := range module {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, verbose := range []string{"-v=false", "-v"} {
		run := exec.CommandContext(t.Context(), "go", "test", verbose, "./...")
		run.Dir, run.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		printed, err := run.CombinedOutput()
		if err == nil {
			t.Fatalf("go test passes:\n%s", printed)
		}
		filter := exec.CommandContext(t.Context(), "../../tools/failures")
		last := filepath.Join(dir, "last"+verbose)
		filter.Stdin, filter.Env = bytes.NewReader(printed), append(os.Environ(), "POLYLET_FAILED="+last)
		shown, err := filter.Output()
		if err != nil {
			t.Fatal(err)
		}
		_, behind, _ := strings.Cut("\n"+string(shown), "\n--- FAIL: TestBad")
		if words := strings.SplitN(behind, "\n", 4); len(words) < 4 || !strings.Contains(words[1], "the first thing is wrong") {
			t.Errorf("%s: behind the test's name stands %.300s", verbose, behind)
		}
		data, err := os.ReadFile(last)
		if err != nil {
			t.Fatal(err)
		}
		end := string(data)
		for _, want := range []string{
			"--- FAIL: TestBad", "the first thing is wrong", "in two lines", "the part is wrong", "FAIL\tfails/a",
			"panic: nobody caught this", "undefined: undefinedThing", "a goroutine was left",
		} {
			if !strings.Contains(end, want) {
				t.Errorf("%s: the end lacks %q:\n%s", verbose, want, end)
			}
		}
		if strings.Count(end, "\n") > 40 || strings.Contains(end, "said") || strings.Contains(end, "it is Ready after") {
			t.Errorf("%s: the end has more than was asked for:\n%s", verbose, end)
		}
	}
}
