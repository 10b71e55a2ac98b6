package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// roots are where a folder's short name is looked for, in this order.
var roots = []string{"services/podsync/internal", "services", "test", "."}

// known is what the test files of one folder have: tests, and the string
// literals that stand in each file, among which a row's name must be.
type known struct {
	path     string
	tests    map[string]string
	literals map[string]map[string]bool
}

// verify says which named tests and rows do not exist.
func verify(root string, chapters []chapter) error {
	folders := map[string]*known{}
	var wrong []error
	for _, c := range chapters {
		for _, r := range c.rules {
			for _, t := range r.tests {
				if err := find(root, folders, t); err != nil {
					wrong = append(wrong, fmt.Errorf("%s: %w", r.where, err))
				}
			}
		}
	}
	return errors.Join(wrong...)
}

func find(root string, folders map[string]*known, t test) error {
	k, ok := folders[t.folder]
	if !ok {
		var err error
		if k, err = look(root, t.folder); err != nil {
			return err
		}
		folders[t.folder] = k
	}
	file, ok := k.tests[t.name]
	if !ok {
		return fmt.Errorf("%s has no test %s: name the one that holds the rule now, or write it", k.path, t.name)
	}
	if t.row != "" && !k.literals[file][t.row] {
		return fmt.Errorf("%s/%s, where %s is, has no row %q", k.path, file, t.name, t.row)
	}
	return nil
}

// place is the folder of a short name: its path below a root, the end of a path
// below the first of them, or service/package.
func place(root, folder string) (string, error) {
	found, err := endings(root, folder)
	if err != nil {
		return "", err
	}
	for _, r := range roots {
		found = append(found, filepath.Join(r, folder))
	}
	if service, room, ok := strings.Cut(folder, "/"); ok {
		found = append(found, filepath.Join("services", service, "internal", room))
	}
	for _, c := range found {
		if hasTests(filepath.Join(root, c)) {
			return c, nil
		}
	}
	return "", fmt.Errorf("no folder %s with tests below %s", folder, strings.Join(roots, ", "))
}

// endings are the folders with tests below the first root whose path ends with a
// short name: one, or none. Two are an error that names them.
func endings(root, folder string) ([]string, error) {
	var found []string
	top := filepath.Join(root, roots[0])
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || !strings.HasSuffix(path, "/"+folder) || !hasTests(path) {
			return err
		}
		short, err := filepath.Rel(root, path)
		found = append(found, short)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for folder %s: %w", folder, err)
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("folder %s may be %s: name more of its path", folder, strings.Join(found, " or "))
	}
	return found, nil
}

func hasTests(dir string) bool {
	tests, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	return len(tests) > 0
}

// look reads the test files of a folder.
func look(root, folder string) (*known, error) {
	path, err := place(root, folder)
	if err != nil {
		return nil, err
	}
	k := &known{path: path, tests: map[string]string{}, literals: map[string]map[string]bool{}}
	entries, err := os.ReadDir(filepath.Join(root, path))
	if err != nil {
		return nil, fmt.Errorf("look for tests: %w", err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("look for tests: %w", err)
		}
		k.literals[e.Name()] = literals(file)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				k.tests[f.Name.Name] = e.Name()
			}
		}
	}
	return k, nil
}

func literals(file *ast.File) map[string]bool {
	out := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if s, err := strconv.Unquote(l.Value); err == nil {
				out[s] = true
			}
		}
		return true
	})
	return out
}
