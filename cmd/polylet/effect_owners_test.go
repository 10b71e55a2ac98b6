package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
)

// TestTheOwnersOfAFieldAreThoseThatReadIt follows the calls from the function that each
// service starts with. A service that reads a field without being its owner would go on
// with the old value when it changes; an owner that does not read it is started again
// for nothing.
func TestTheOwnersOfAFieldAreThoseThatReadIt(t *testing.T) {
	graph := callsAndReads(t)
	names := fieldNames()
	fields := configslice.Effects()
	reads := map[string]map[string]bool{}
	for _, name := range service.ServersFirst() {
		reads[name] = graph.reachable("run"+strings.ToUpper(name[:1])+name[1:], "serviceCommand")
		if len(reads[name]) < 5 {
			t.Fatalf("%s reads %v: the test finds nothing", name, reads[name])
		}
	}
	for path, effect := range fields {
		if effect.Who == "loading" {
			continue // read by what makes defaults, or as fields of its own
		}
		owners, _ := configslice.Owners(path)
		for _, name := range service.ServersFirst() {
			reading := reads[name][names[path]] || strings.HasPrefix(path, kubeletconfig.GatePrefix) && reads[name][path]
			if owns := slices.Contains(owners, name); owns != reading {
				t.Errorf("%s: %s reads it is %v, and owns it is %v: correct internal/kubeletconfig/effectfields.go", path, name, reading, owns)
			}
		}
	}
}

// calls are what each function refers to, and which fields it reads, by name.
type calls struct {
	refers map[string]map[string]bool
	reads  map[string]map[string]bool
}

func (c *calls) reachable(from ...string) map[string]bool {
	out, seen := map[string]bool{}, map[string]bool{}
	for len(from) > 0 {
		name := from[0]
		from = from[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		for field := range c.reads[name] {
			out[field] = true
		}
		for callee := range c.refers[name] {
			from = append(from, callee)
		}
	}
	return out
}

func callsAndReads(t *testing.T) *calls {
	t.Helper()
	exports := exportData(t)
	out := &calls{refers: map[string]map[string]bool{}, reads: map[string]map[string]bool{}}
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
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{}}
		if _, err := conf.Check(dir, fset, parsed, info); err != nil {
			t.Fatal(err)
		}
		for i, file := range parsed {
			if dir == "." || countsAsUse(files[i]) {
				out.collect(file, info)
			}
		}
	}
	return out
}

func (c *calls) collect(file *ast.File, info *types.Info) {
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Name.Name == "ConfigzJSON" { // which masks, and uses nothing
			continue
		}
		refers, reads := map[string]bool{}, map[string]bool{}
		c.refers[fn.Name.Name], c.reads[fn.Name.Name] = refers, reads
		var texts []string // of which those that name a gate are asked for
		ast.Inspect(fn, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil {
					texts = append(texts, text)
				}
			case *ast.Ident:
				if f, ok := info.Uses[n].(*types.Func); ok && f.Pkg() != nil && (strings.HasSuffix(f.Pkg().Path(), "internal/kubeletconfig") || f.Pkg().Path() == ".") {
					refers[f.Name()] = true
				}
			case *ast.SelectorExpr:
				if s := info.Selections[n]; s != nil && s.Kind() == types.FieldVal {
					reads[ownerOf(s)+"."+s.Obj().Name()] = true
				}
			}
			return true
		})
		for _, text := range texts {
			if refers["FeatureEnabled"] {
				reads[kubeletconfig.GatePrefix+text] = true
			}
		}
	}
}
