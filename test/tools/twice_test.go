package tools_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// rare is a module whose tests fail as the environment says: TestRare once.
const rare = `package rare

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

func is(what string) bool { return strings.Contains(os.Getenv("RARE"), what) }

func TestRare(t *testing.T) {
	if is("once") {
		if err := os.Mkdir(os.Getenv("RARE_DIR"), 0o700); err == nil {
			t.Error("wrong this time")
		}
	}
}

func TestWrong(t *testing.T) {
	if is("always") {
		t.Error("wrong each time")
	}
}

func TestThird(t *testing.T) {
	if is("three") {
		t.Error("the third is wrong")
	}
	if is("behind") {
		fmt.Print("half a line")
		t.Fail()
	}
}

func TestPanics(t *testing.T) {
	if is("panic") {
		panic("nobody caught this")
	}
	if is("killed") {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if is("quits") {
		os.Exit(1)
	}
	if is("unfinished") {
		fmt.Print("half a line")
		panic("nobody caught this")
	}
}

func FuzzSeeds(f *testing.F) {
	f.Add(1)
	f.Fuzz(func(t *testing.T, _ int) {
		if is("seed") {
			t.Error("a seed is wrong")
		}
	})
}

func TestCounted(t *testing.T) { t.Log("TestCounted was run") }
`

// A test on real parts that fails and then passes by itself does not fail the whole,
// but is told; nothing else is forgiven.
func TestOnlyWhatFailsTwiceFailsTheNodeTests(t *testing.T) {
	for name, c := range map[string]struct {
		rare        string
		passes, two bool // the whole passes, and the tests that failed ran twice
		told        []string
	}{
		"nothing fails":        {"", true, false, nil},
		"once":                 {"once", true, true, []string{"passed when run once more", "--- FAIL: TestRare", "wrong this time"}},
		"always":               {"always", false, true, []string{"--- FAIL: TestWrong", "wrong each time"}},
		"one of each":          {"once always", false, true, []string{"--- FAIL: TestRare", "--- FAIL: TestWrong", "wrong each time"}},
		"more than two":        {"once always three", false, false, []string{"--- FAIL: TestRare", "the third is wrong"}},
		"a panic, besides":     {"once panic", false, false, []string{"nobody caught this"}},
		"killed, besides":      {"once killed", false, false, []string{"--- FAIL: TestRare"}},
		"quits, besides":       {"once quits", false, false, []string{"--- FAIL: TestRare"}},
		"amid a line, besides": {"once unfinished", false, false, []string{"--- FAIL: TestRare"}},
		"behind half a line":   {"once behind", false, false, []string{"--- FAIL: TestRare"}},
		"a seed, besides":      {"once seed", false, false, []string{"--- FAIL: TestRare", "a seed is wrong"}},
		"what is not built":    {"unbuilt", false, false, []string{"undefinedThing"}},
		"no test, but it ends": {"exits", false, false, []string{"a goroutine was left"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("go.mod", "module rare\n\ngo 1.26\n")
			write("rare_test.go", rare)
			switch c.rare {
			case "unbuilt":
				write("unbuilt_test.go", "package rare\n\nfunc f() { undefinedThing() }\n")
			case "exits":
				write("main_test.go", strings.ReplaceAll(module["d/d_test.go"], "package d", "package rare"))
			}
			twice, err := filepath.Abs("../../tools/twice")
			if err != nil {
				t.Fatal(err)
			}
			run := exec.CommandContext(t.Context(), twice, "log", ".", "./...")
			run.Dir = dir
			run.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "RARE="+c.rare, "RARE_DIR="+filepath.Join(dir, "seen"), "POLYLET_FAILED="+filepath.Join(dir, "told"))
			shown, err := run.CombinedOutput()
			if (err == nil) != c.passes {
				t.Fatalf("it ends with %v:\n%s", err, shown)
			}
			if two := strings.Contains(string(shown), "once more, by themselves"); two != c.two {
				t.Errorf("run once more: %v:\n%s", two, shown)
			}
			early := regexp.MustCompile("unbuilt|exits|panic|killed|quits|unfinished").MatchString(c.rare) // it ends before that
			if n := strings.Count(string(shown), "TestCounted was run"); !early && n != 1 {
				t.Errorf("a test that passed ran %d times", n)
			}
			told, err := os.ReadFile(filepath.Join(dir, "told"))
			if err != nil && len(c.told) > 0 {
				t.Fatal(err)
			}
			for _, want := range c.told {
				if !strings.Contains(string(told), want) {
					t.Errorf("its last words lack %q:\n%s", want, told)
				}
			}
			if c.passes && c.rare == "" && len(told) > 0 {
				t.Errorf("nothing failed, and it tells %s", told)
			}
		})
	}
}
