// Package wings holds the order of a folder's packages: which stand above which,
// whether an import climbs, and the picture of it in a README. It is for tests, and
// must never decide by itself which wings a folder has.
package wings

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/testkit/golden"
)

// Wing is a group of packages that imports only what stands below it.
type Wing struct {
	// Name is shown in the picture.
	Name string
	// Folders are those whose packages belong to it, with what is below them; none
	// is the folder of its name.
	Folders []string
}

func (w Wing) folders() []string {
	if len(w.Folders) == 0 {
		return []string{w.Name}
	}
	return w.Folders
}

func (w Wing) has(path string) bool {
	return slices.ContainsFunc(w.folders(), func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

// short is a package's path as its wing's row shows it; empty for the wing itself.
func (w Wing) short(path string) string {
	if len(w.Folders) > 0 {
		return path
	}
	return strings.TrimPrefix(strings.TrimPrefix(path, w.Name), "/")
}

// Package is one below a folder.
type Package struct {
	// Path is that below the folder.
	Path string
	// Comment is the package's.
	Comment string
	// Imports are other packages below the folder, by path, sorted.
	Imports []string
}

// Read returns the packages below dir, by path, of which prefix is the import path:
// what their files import for which takes says yes. The folder itself, modules
// within it and test data are left out.
func Read(dir, prefix string, takes func(file string) bool) ([]Package, error) {
	byPath := map[string]*Package{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			_, err := os.Stat(filepath.Join(file, "go.mod"))
			if file != dir && (err == nil || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(file, ".go") || filepath.Dir(file) == filepath.Clean(dir) || !takes(file):
			return nil
		}
		path, err := filepath.Rel(dir, filepath.Dir(file))
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		if byPath[path] == nil {
			byPath[path] = &Package{Path: path}
		}
		byPath[path].add(parsed, prefix+"/")
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the packages below %s: %w", dir, err)
	}
	out := make([]Package, 0, len(byPath))
	for _, p := range byPath {
		slices.Sort(p.Imports)
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Package) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

func (p *Package) add(file *ast.File, prefix string) {
	if file.Doc != nil {
		p.Comment += file.Doc.Text()
	}
	for _, im := range file.Imports {
		path, err := strconv.Unquote(im.Path.Value)
		if other, ok := strings.CutPrefix(path, prefix); err == nil && ok && other != p.Path && !slices.Contains(p.Imports, other) {
			p.Imports = append(p.Imports, other)
		}
	}
}

func find(wings []Wing, path string) int {
	return slices.IndexFunc(wings, func(w Wing) bool { return w.has(path) })
}

// Climbs says what is wrong with the imports of these packages; wings stand from
// the top down.
func Climbs(wings []Wing, all []Package) []string {
	var wrong []string
	for _, p := range all {
		at := find(wings, p.Path)
		if at < 0 {
			wrong = append(wrong, fmt.Sprintf("%s is in no wing: give it a place, or the test of the wings the wing", p.Path))
			continue
		}
		for _, other := range p.Imports {
			if find(wings, other) < at {
				wrong = append(wrong, fmt.Sprintf("%s imports %s, which is drawn above it: move what both need below, or declare an interface here", p.Path, other))
			}
		}
	}
	return wrong
}

// Picture draws a wing in each line, from the top down: its packages, and which
// wings below it they import.
func Picture(wings []Wing, all []Package) string {
	var b bytes.Buffer
	b.WriteString("\n| wing | packages | imports |\n|---|---|---|\n")
	for at, wing := range wings {
		var packages, below []string
		for _, p := range all {
			if find(wings, p.Path) != at {
				continue
			}
			if short := wing.short(p.Path); short != "" {
				packages = append(packages, "`"+short+"`")
			}
			for _, other := range p.Imports {
				if to := find(wings, other); to > at && !slices.Contains(below, wings[to].Name) {
					below = append(below, wings[to].Name)
				}
			}
		}
		slices.SortFunc(below, func(a, b string) int { return index(wings, a) - index(wings, b) })
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", wing.Name, strings.Join(packages, ", "), strings.Join(below, ", "))
	}
	b.WriteString("\n")
	return b.String()
}

func index(wings []Wing, name string) int {
	return slices.IndexFunc(wings, func(w Wing) bool { return w.Name == name })
}

const end = "<!-- end of wings -->\n"

// Shown fails the test when README.md in the working directory does not show the
// picture; with -update, which command is to call, it draws it there.
func Shown(t *testing.T, command, picture string) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	begin := "<!-- wings: drawn by `" + command + "` -->\n"
	before, rest, ok := strings.Cut(string(readme), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("README.md has no part between %q and %q", begin, end)
	}
	golden.Equal(t, "README.md", []byte(before+begin+picture+end+after))
}
