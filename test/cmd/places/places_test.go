package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func TestWhatIsWishedForBeginsFirstAndWhatFitsGoesAhead(t *testing.T) {
	wished, err := wishes("# the longest\nTestLong 1 # minutes\n\nTestWide 2\nTestAlone alone\nTestOther 1\n")
	if err != nil {
		t.Fatal(err)
	}
	q := lineUp([]string{"TestA", "TestAlone", "TestB", "TestLong", "TestWide"}, wished)
	var began []string
	for _, free := range []int{3, 1, 1, 2, 2, 3} {
		w, ok := q.next(free, 3)
		if !ok {
			w.name = "none"
		}
		began = append(began, w.name)
	}
	if want := []string{"TestLong", "TestA", "TestB", "TestWide", "none", "TestAlone"}; !reflect.DeepEqual(began, want) {
		t.Errorf("they begin as %q; want %q", began, want)
	}
	q = lineUp([]string{"TestWide"}, wished)
	if w, ok := q.next(1, 1); !ok || w.places != 1 {
		t.Errorf("a test that wants more places than there are: %v, %v; want it alone", w, ok)
	}
}

func TestAWishThatSaysNothingIsRefused(t *testing.T) {
	for _, text := range []string{"TestA", "TestA 0", "TestA two", "TestA 1 2"} {
		if w, err := wishes(text); err == nil {
			t.Errorf("%q is %v", text, w)
		}
	}
}

// The test program itself, asked to list nothing, would run all of its tests.
func TestAPatternIsNeverEmpty(t *testing.T) {
	for pattern, top := range map[string]string{"": ".", "/part": ".", "A|B/part": "A|B"} {
		p, err := parse([]string{"node.test", "-test.run=" + pattern})
		if err != nil || p.top != top {
			t.Errorf("%q picks %+v, %v; want %q", pattern, p, err, top)
		}
	}
	if p, err := parse([]string{"node.test", "-test.run", "A"}); err == nil {
		t.Errorf("a pattern that stands apart is %+v", p)
	}
}

// sample is a module of tests that tell of each other by files.
const sample = `package sample

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if is("empty") {
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func is(what string) bool { return strings.Contains(os.Getenv("SAMPLE"), what) }

func path(name string) string { return filepath.Join(os.Getenv("SAMPLE_DIR"), name) }

func begin(t *testing.T) {
	file := path("runs-" + t.Name())
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
}

func TestAlone(t *testing.T) {
	if others, _ := filepath.Glob(path("runs-*")); len(others) > 0 {
		t.Errorf("runs beside %s", others)
	}
}

func TestFirst(t *testing.T) { meet(t, "First", "Second") }

func TestSecond(t *testing.T) { meet(t, "Second", "First") }

func meet(t *testing.T, own, other string) {
	begin(t)
	if err := os.WriteFile(path("met-"+own), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path("met-" + other)); err == nil {
			t.Logf("%s has met %s", own, other)
			return
		}
	}
	t.Errorf("%s is not there", other)
}

func TestThird(t *testing.T) {
	begin(t)
	switch {
	case is("wrong"):
		t.Error("the third is wrong")
	case is("killed"):
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case is("unfinished"):
		fmt.Print("half a line")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case is("leaves"):
		syscall.Exit(0)
	case is("quits"):
		fmt.Println("--- FAIL: TestOther (0.00s)")
		os.Exit(1)
	case is("word"):
		fmt.Print("half a line")
	case is("hangs"):
		time.Sleep(time.Hour)
	}
	t.Run("part", func(t *testing.T) { t.Log("a part was run") })
	t.Run("other", func(t *testing.T) { t.Log("the other part was run") })
}

func FuzzSeeds(f *testing.F) {
	f.Add(1)
	f.Fuzz(func(t *testing.T, n int) { t.Logf("seed %d was run", n) })
}
`

// What go test prints with places says all that it says without, and it fails when one
// of the tests does.
func TestTestsRunBesideEachOtherAndOneThatFailsFailsTheWhole(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module sample\n\ngo 1.26\n", "sample_test.go": sample, "testdata/places": "TestAlone alone\n", "strange": "TestGone 1\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	places := filepath.Join(dir, "places")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", places, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, c := range map[string]struct {
		flags, pattern, sample string
		passes                 bool
		shows, lacks           []string
	}{
		"all pass":               {"-n 2", ".", "", true, []string{"First has met Second", "Second has met First", "--- PASS: TestAlone", "a part was run", "seed 1 was run", "5 tests in "}, []string{"FAIL"}},
		"one is wrong":           {"-n 2", ".", "wrong", false, []string{"--- FAIL: TestThird", "the third is wrong", "--- PASS: TestFirst"}, []string{"fatal error"}},
		"one is killed":          {"-n 2", ".", "killed", false, []string{"fatal error: TestThird: signal: killed", "--- PASS: TestFirst"}, nil},
		"killed amid a line":     {"-n 2", ".", "unfinished", false, []string{"\nfatal error: TestThird: signal: killed", "--- PASS: TestFirst"}, nil},
		"one leaves unseen":      {"-n 2", ".", "leaves", false, []string{"\nfatal error: TestThird: its process ended as if all were well", "--- PASS: TestFirst"}, nil},
		"one quits":              {"-n 2", ".", "quits", false, []string{"\nfatal error: TestThird: exit status 1"}, nil},
		"amid a line it passes":  {"-n 2", ".", "word", true, []string{"half a line"}, []string{"fatal error"}},
		"a program is empty":     {"-n 2", ".", "empty", false, []string{"it has no tests"}, nil},
		"parts of one of two":    {"-n 2", "Third|Alone/none", "", true, []string{"a part was run", "the other part was run"}, []string{"TestFirst"}},
		"one does not end":       {"-n 2", ".", "hangs", false, []string{"panic: test timed out", "--- PASS: TestFirst"}, []string{"fatal error"}},
		"one by itself":          {"-n 2", "TestThird", "", true, []string{"a part was run"}, []string{"TestFirst", "tests in "}},
		"parts":                  {"-n 2", "Alone|Third/part", "", true, []string{"--- PASS: TestAlone", "a part was run"}, []string{"the other part", "TestFirst"}},
		"none":                   {"-n 2", "TestGone", "", true, []string{"no tests to run"}, nil},
		"a wish of what is gone": {"-n 2 -wishes strange", ".", "", false, []string{"strange: there is no test TestGone"}, []string{"TestFirst"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			within := "1m"
			if c.sample == "hangs" {
				within = "5s"
			}
			run := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-timeout="+within, "-run="+c.pattern, "-exec", places+" "+c.flags, ".")
			run.Dir = dir
			run.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "SAMPLE="+c.sample, "SAMPLE_DIR="+t.TempDir())
			out, err := run.CombinedOutput()
			if (err == nil) != c.passes {
				t.Fatalf("it ends with %v:\n%s", err, out)
			}
			for _, want := range c.shows {
				if !strings.Contains(string(out), want) {
					t.Errorf("it lacks %q:\n%s", want, out)
				}
			}
			for _, not := range c.lacks {
				if regexp.MustCompile(`(?m)` + not).Match(out) {
					t.Errorf("it has %q:\n%s", not, out)
				}
			}
		})
	}
}
