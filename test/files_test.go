package test_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// mostLines is how long a file of Go may be.
const mostLines = 500

// folder is a folder's files of Go, by name, without those that are generated.
type folder map[string]string

// folders are all of the repository that have such files, by path.
func folders(t *testing.T) map[string]folder {
	t.Helper()
	out := map[string]folder{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != "..") {
				return fs.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || strings.HasPrefix(string(text), "// Code generated ") {
			return err
		}
		name, err := filepath.Rel("..", filepath.Dir(path))
		if out[name] == nil {
			out[name] = folder{}
		}
		out[name][d.Name()] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// declared are the functions of a file; one that begins with Test, Benchmark, Fuzz
// or Example is a test, but TestMain.
func declared(text string) (functions, tests []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		functions = append(functions, f.Name.Name)
		if f.Recv == nil && isTest(f.Name.Name) {
			tests = append(tests, f.Name.Name)
		}
	}
	return functions, tests, nil
}

func isTest(name string) bool {
	return name != "TestMain" && slices.ContainsFunc([]string{"Test", "Benchmark", "Fuzz", "Example"}, func(kind string) bool {
		rest, ok := strings.CutPrefix(name, kind)
		return ok && (rest == "" || !unicode.IsLower([]rune(rest)[0]))
	})
}

// built says whether a file is built on this machine, or says itself where it is: a
// name that ends in _windows or _arm64 is a condition too, which nobody sees.
func (f folder) built(name string) bool {
	c := build.Default
	c.OpenFile = func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(f[name])), nil }
	matches, err := c.MatchFile("", name)
	return err != nil || matches || strings.Contains(f[name], "//go:build ")
}

// misplaced says what is wrong with the names, the lengths and the tests of a
// folder's files, as CONTRIBUTING.md has the rules.
func (f folder) misplaced(path string) (wrong []string, err error) {
	stems, functions, tested := []string{filepath.Base(path)}, 0, false
	tests := map[string]string{} // a test of each file that has some, by stem
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if lines := strings.Count(f[name], "\n"); lines > mostLines {
			wrong = append(wrong, fmt.Sprintf("%s/%s has %d lines: split it by subject", path, name, lines))
		}
		if strings.HasSuffix(name, "_test.go") && !f.built(name) {
			wrong = append(wrong, fmt.Sprintf("%s/%s is left out of every build here for the end of its name", path, name))
		}
		all, some, err := declared(f[name])
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", path, name, err)
		}
		stem, ok := strings.CutSuffix(name, "_test.go")
		switch {
		case !ok:
			stems = append(stems, strings.TrimSuffix(name, ".go"))
			functions += len(all)
		case len(some) > 0:
			tests[stem], tested = some[0], true
		}
	}
	ships := !strings.HasPrefix(path, "test") && path != "."
	if ships && functions > 0 && !tested {
		wrong = append(wrong, path+" has no tests in its folder")
	}
	if len(stems) == 1 || len(stems) == 2 && stems[1] == "doc" {
		return wrong, nil // It has tests only.
	}
	for _, stem := range slices.Sorted(maps.Keys(tests)) {
		if !slices.ContainsFunc(stems, func(of string) bool { return stem == of || strings.HasPrefix(stem, of+"_") }) {
			wrong = append(wrong, fmt.Sprintf("%s/%s_test.go has %s, and there is no %s.go: call it after the file that it tests, or after the package", path, stem, tests[stem], stem))
		}
	}
	return wrong, nil
}

func TestTestsAreWhereOneLooksForThem(t *testing.T) {
	all := folders(t)
	if len(all) < 150 {
		t.Fatalf("only %d folders were found", len(all))
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		wrong, err := all[path].misplaced(path)
		if err != nil {
			t.Error(err)
		}
		for _, w := range wrong {
			t.Error(w)
		}
	}
}

func TestATestThatNobodyFindsIsFound(t *testing.T) {
	const code, test = "package p\nfunc f() {}\n", "package p\nfunc TestF() {}\n"
	for name, tc := range map[string]struct {
		path  string
		files folder
		want  string // a part of what is wrong; empty for nothing
	}{
		"a file's":                        {"services/p", folder{"x.go": code, "x_test.go": test}, ""},
		"a scenario of a file":            {"services/p", folder{"x.go": code, "x_late_test.go": test}, ""},
		"the package's":                   {"services/p", folder{"x.go": code, "p_test.go": test}, ""},
		"a scenario of the package":       {"services/p", folder{"x.go": code, "p_late_test.go": test}, ""},
		"nobody's":                        {"services/p", folder{"x.go": code, "late_test.go": test}, "late_test.go has TestF, and there is no late.go"},
		"a name that begins like another": {"services/p", folder{"x.go": code, "xy_test.go": test}, "there is no xy.go"},
		"a fuzzer, too":                   {"services/p", folder{"x.go": code, "x_test.go": test, "late_test.go": "package p\nfunc FuzzF() {}\n"}, "late_test.go has FuzzF"},
		"a benchmark, too":                {"services/p", folder{"x.go": code, "x_test.go": test, "late_test.go": "package p\nfunc BenchmarkF() {}\n"}, "late_test.go has BenchmarkF"},
		"no test but a fake":              {"services/p", folder{"x.go": code, "x_test.go": test, "fakes_test.go": "package p\nfunc Testing() {}\nfunc TestMain() {}\n"}, ""},
		"a folder of tests only":          {"test/p", folder{"late_test.go": test}, ""},
		"one that says what it is":        {"services/p", folder{"doc.go": "package p\n", "late_test.go": test}, ""},
		"none for what ships":             {"services/p", folder{"x.go": code, "fakes_test.go": code}, "services/p has no tests in its folder"},
		"none for what has no functions":  {"services/p", folder{"x.go": "package p\nconst x = 1\n"}, ""},
		"none for the tests' own":         {"test/p", folder{"x.go": code}, ""},
		"a condition that nobody meant":   {"services/p", folder{"x.go": code, "x_windows_test.go": test}, "x_windows_test.go is left out of every build here"},
		"a condition that is said":        {"services/p", folder{"x.go": code, "x_test.go": test, "x_far_test.go": "//go:build !linux\n\n" + test}, ""},
		"a long file":                     {"services/p", folder{"x.go": code + strings.Repeat("\n", mostLines), "x_test.go": test}, "x.go has 502 lines"},
		"a long test":                     {"test/p", folder{"x_test.go": test + strings.Repeat("\n", mostLines)}, "x_test.go has 502 lines"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong, err := tc.files.misplaced(tc.path)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(wrong, "\n"); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
