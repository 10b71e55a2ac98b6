package wings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var house = []Wing{{Name: "server"}, {Name: "report"}, {Name: "ground", Folders: []string{"pod", "disk/file"}}}

func TestAnArrowThatClimbsIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		given Package
		want  string
	}{
		"upwards":                       {Package{Path: "report/status", Imports: []string{"server"}}, "drawn above it"},
		"upwards from a folder":         {Package{Path: "disk/file", Imports: []string{"report/status"}}, "drawn above it"},
		"downwards":                     {Package{Path: "server", Imports: []string{"report/status", "pod"}}, ""},
		"in one wing":                   {Package{Path: "pod", Imports: []string{"disk/file"}}, ""},
		"to what is in no wing":         {Package{Path: "pod", Imports: []string{"other"}}, "drawn above it"},
		"a wing of its own":             {Package{Path: "other/thing"}, "in no wing"},
		"a name that begins like one's": {Package{Path: "reporter"}, "in no wing"},
		"the folder above one's":        {Package{Path: "disk"}, "in no wing"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(Climbs(house, []Package{tc.given}), "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestThePictureHasEachWingWithWhatItImports(t *testing.T) {
	got := Picture(house, []Package{
		{Path: "disk/file"},
		{Path: "pod", Imports: []string{"disk/file"}},
		{Path: "report/status", Imports: []string{"pod"}},
		{Path: "server", Imports: []string{"pod", "report/status"}},
	})
	const want = "\n| wing | packages | imports |\n|---|---|---|\n" +
		"| `server` |  | report, ground |\n| `report` | `status` | ground |\n| `ground` | `disk/file`, `pod` |  |\n\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPackagesAreReadWithTheirImportsOfEachOther(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"root.go":              "package root",
		"a/a.go":               "// Package a is the first.\npackage a\nimport (\n\"fmt\"\n\"x.org/m/b\"\n\"x.org/m/b/c\"\n\"x.org/other\"\n)",
		"a/a_test.go":          "package a\nimport \"x.org/m/d\"",
		"b/b.go":               "package b",
		"b/c/c.go":             "package c\nimport \"x.org/m/b\"",
		"module/go.mod":        "module x.org/module",
		"module/m.go":          "package m",
		"b/testdata/broken.go": "this is no Go",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(dir, "x.org/m", func(file string) bool { return !strings.HasSuffix(file, "_test.go") })
	want := []Package{
		{Path: "a", Comment: "Package a is the first.\n", Imports: []string{"b", "b/c"}}, {Path: "b"}, {Path: "b/c", Imports: []string{"b"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}
