package main

import (
	"bytes"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/polylet/polylet/internal/kubeletconfig"
)

const (
	configTypes  = "k8s.io/kubelet/config/v1beta1"
	configLoader = "github.com/polylet/polylet/internal/kubeletconfig"
)

// TestWhatIsSaidToBeUsedIsRead type-checks what reads the configuration: this
// command, and of the package that loads it what neither makes defaults nor
// validates. A field or a gate that is said to be used is read there, one that
// is said to have no effect is not.
func TestWhatIsSaidToBeUsedIsRead(t *testing.T) {
	read := readsOfConfiguration(t)
	fields, _, gates := kubeletconfig.Effects()
	names := fieldNames()
	for path, effect := range fields {
		where := read.fields[names[path]]
		if effect.Who == "loading" {
			where = read.defaults.fields[names[path]]
		}
		switch {
		case names[path] == "":
			t.Errorf("%s: no such field", path)
		case effect.State == kubeletconfig.Used && where == "":
			t.Errorf("%s is said to be used by %s and nobody reads it", path, effect.Who)
		case effect.State != kubeletconfig.Used && where != "":
			t.Errorf("%s is said to have no effect and is read by %s: correct internal/kubeletconfig/effectfields.go", path, where)
		}
	}
	for name, effect := range gates {
		if where, said := read.gates[name], effect.State == kubeletconfig.Used; said != (where != "") {
			t.Errorf("gate %s: said to be used is %v, read by %q: correct internal/kubeletconfig/effectgates.go", name, said, where)
		}
	}
}

// reads are who reads a field, by type and name, and who asks for a gate.
type reads struct {
	fields, gates map[string]string
	// defaults is the same of what makes defaults.
	defaults *reads
}

func newReads() *reads { return &reads{fields: map[string]string{}, gates: map[string]string{}} }

func readsOfConfiguration(t *testing.T) *reads {
	t.Helper()
	exports := exportData(t)
	out := newReads()
	out.defaults = newReads()
	for dir, files := range map[string][]string{".": goFiles(t, "."), "../../internal/kubeletconfig": goFiles(t, "../../internal/kubeletconfig")} {
		fset := token.NewFileSet()
		var parsed []*ast.File
		for _, name := range files {
			file, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, file)
		}
		lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
		conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
		if _, err := conf.Check(dir, fset, parsed, info); err != nil {
			t.Fatal(err)
		}
		for i, file := range parsed {
			switch name := files[i]; {
			case dir == "." || countsAsUse(name):
				out.collect(file, name, info)
			case strings.HasPrefix(name, "default"):
				out.defaults.collect(file, name, info)
			}
		}
	}
	return out
}

// countsAsUse leaves out the files of the loader that handle all fields alike,
// make defaults or validate.
func countsAsUse(file string) bool {
	for _, prefix := range []string{"default", "validate", "file", "flag", "feature", "effect", "origin"} {
		if strings.HasPrefix(file, prefix) {
			return false
		}
	}
	return true
}

// collect notes fields that are read, and gates that are asked for by a literal.
func (r *reads) collect(file *ast.File, name string, info *types.Info) {
	written := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				written[left] = true
			}
		case *ast.SelectorExpr:
			if s := info.Selections[n]; s != nil && s.Kind() == types.FieldVal && !written[n] {
				r.fields[ownerOf(s)+"."+s.Obj().Name()] = name
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil {
				r.gates[text] = name
			}
		}
		return true
	})
}

// ownerOf is the struct that a selected field stands in; for an embedded one
// the struct that it was selected from, which is what fieldNames says too.
func ownerOf(s *types.Selection) string {
	t := s.Recv()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj().Name()
	}
	return ""
}

// fieldNames are Go's names of the fields, type and field, by path in JSON.
func fieldNames() map[string]string {
	out := map[string]string{}
	var walk func(prefix string, t reflect.Type, owner string)
	walk = func(prefix string, t reflect.Type, owner string) {
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			nested := field.Type
			if nested.Kind() == reflect.Pointer {
				nested = nested.Elem()
			}
			out[prefix+name] = owner + "." + field.Name
			if nested.Kind() != reflect.Struct {
				continue
			}
			if name == "" {
				walk(prefix, nested, owner)
			} else {
				walk(prefix+name+".", nested, nested.Name())
			}
		}
	}
	walk("", reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), "KubeletConfiguration")
	return out
}

// exportData are the compiled packages that this command needs, by path.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	raw, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, errs.String())
	}
	out := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			out[path] = file
		}
	}
	for _, needed := range []string{configTypes, configLoader} {
		if out[needed] == "" {
			t.Fatalf("go list knows no %s; it knows %d packages", needed, len(slices.Collect(maps.Keys(out))))
		}
	}
	return out
}

// goFiles are the files of a package that are built here, without tests.
func goFiles(t *testing.T, dir string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .GoFiles " "}}`, ".")
	cmd.Dir = dir
	raw, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list in %s: %v", dir, err)
	}
	return strings.Fields(string(raw))
}
