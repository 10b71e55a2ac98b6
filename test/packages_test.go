package test_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestEachPackageSaysWhatItMustNeverDo looks at the comments of all packages that
// commands are made of: each says what it owns, and what it must never do or become.
func TestEachPackageSaysWhatItMustNeverDo(t *testing.T) {
	comments := map[string]string{}
	names := map[string]string{}
	root := ".."
	for _, dir := range []string{"internal", "services"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(path, "/gen/") || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || d.Name() == "doc.go" && strings.Contains(path, "/sim/") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				return err
			}
			folder, err := filepath.Rel(root, filepath.Dir(path))
			names[folder], comments[folder] = file.Name.Name, comments[folder]+file.Doc.Text()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(comments) < 100 {
		t.Fatalf("only %d packages were found", len(comments))
	}
	for folder, comment := range comments {
		if wrong := wrongWith(names[folder], comment); wrong != "" && names[folder] != "main" {
			t.Errorf("%s: %s:\n%s", folder, wrong, comment)
		}
	}
}

// wrongWith says what a package's comment lacks; empty for nothing.
func wrongWith(name, comment string) string {
	text := strings.ToLower(comment)
	switch {
	case !strings.HasPrefix(comment, "Package "+name+" "):
		return "its comment does not begin with its name"
	case !strings.Contains(text, "never"):
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
		if got := wrongWith("pods", comment); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", comment, got, want)
		}
	}
}
