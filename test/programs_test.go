package test_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// programs are the files that may run another program, each with an argument
// list of its own making: no text of a pod reaches a shell (CVE-2023-3676 and its
// siblings). One more here needs the same care.
var programs = []string{
	"internal/supervise/supervise.go",
	"services/nodestatus/internal/nodelog/journal.go",
	"services/podsync/internal/host/apart/apart.go",
	"services/podsync/internal/host/firewall/run.go",
	"services/podsync/internal/runtime/image/credentialprovider/run.go",
	"services/podsync/internal/resources/userns/host.go",
	"services/podsync/internal/storage/mount/devicelock.go",
	"services/podsync/internal/storage/mount/remote.go",
	"services/podsync/internal/storage/scsi/programs.go",
}

func TestNothingThatShipsRunsAShell(t *testing.T) {
	root := ".."
	for _, dir := range []string{"cmd", "internal", "services"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() && d.Name() == "testkit" {
				return orSkip(err)
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			name, _ := filepath.Rel(root, path)
			runs := slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"os/exec"` })
			if runs && !slices.Contains(programs, name) {
				t.Errorf("%s imports os/exec", name)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if text, err := strconv.Unquote(literal(lit, ok)); runs && err == nil && slices.Contains([]string{"sh", "bash", "/bin/sh", "/bin/bash", "-c"}, text) {
					t.Errorf("%s has the text %q", name, text)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func orSkip(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}

func literal(lit *ast.BasicLit, ok bool) string {
	if !ok {
		return ""
	}
	return lit.Value
}
