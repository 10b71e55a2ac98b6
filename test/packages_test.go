package test_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestEachPackageSaysWhatItMustNeverDo looks at the comments of all packages, commands and
// those that only have tests among them: each says what it owns, and what it must never do
// or become.
func TestEachPackageSaysWhatItMustNeverDo(t *testing.T) {
	type comment struct{ name, text, tests string }
	all := map[string]*comment{}
	for _, dir := range []string{"internal", "services", "cmd", "test"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(path, "/gen/") || strings.Contains(path, "/testdata/") || !strings.HasSuffix(path, ".go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				return err
			}
			folder, err := filepath.Rel("..", filepath.Dir(path))
			if all[folder] == nil {
				all[folder] = &comment{}
			}
			if c := all[folder]; !strings.HasSuffix(path, "_test.go") {
				c.name, c.text = file.Name.Name, c.text+file.Doc.Text()
			} else if text := file.Doc.Text(); c.tests == "" || text != "" {
				c.tests = file.Name.Name + "\n" + text
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) < 250 {
		t.Fatalf("only %d packages were found", len(all))
	}
	for folder, c := range all {
		if c.name == "" { // it only has tests
			c.name, c.text, _ = strings.Cut(c.tests, "\n")
		}
		if wrong := wrongWith(folder, c.name, c.text); wrong != "" {
			t.Errorf("%s: %s:\n%s", folder, wrong, c.text)
		}
	}
}

// wrongWith says what the comment of a folder's package lacks; empty for nothing.
func wrongWith(folder, name, comment string) string {
	begins := "Package " + name + " "
	if name == "main" {
		begins = "Command " + filepath.Base(folder) + " "
	}
	switch {
	case !strings.HasPrefix(comment, begins):
		return "its comment does not begin with its name"
	case !strings.Contains(strings.ToLower(comment), "never"):
		return "its comment does not say what it must never do"
	case len(strings.Fields(comment)) < 12:
		return "its comment does not say what it owns"
	}
	return ""
}

func TestAPackageWithoutThatInItsCommentIsFound(t *testing.T) {
	for comment, want := range map[string]string{
		"": "does not begin",
		"Package other keeps the pods of a node in memory, and must never write to the disk itself.":  "does not begin",
		"Package pods keeps the pods of a node in memory, with all that anybody has said about them.": "must never do",
		"Package pods must never block.": "what it owns",
		"Package pods keeps the pods of a node in memory. It must never write to the disk itself.": "",
	} {
		if got := wrongWith("internal/pods", "pods", comment); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", comment, got, want)
		}
	}
}

func TestACommandThatSaysNothingOfItselfIsFound(t *testing.T) {
	for comment, want := range map[string]string{
		"Package main keeps the pods of a node in memory, and must never write to the disk itself.": "does not begin",
		"Command pods keeps the pods of a node in memory, with all that anybody has said.":          "must never do",
		"Command pods keeps the pods of a node in memory, and must never write to the disk itself.": "",
	} {
		if got := wrongWith("cmd/pods", "main", comment); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", comment, got, want)
		}
	}
}
