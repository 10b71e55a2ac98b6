package test_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/service"
)

// notAService are the files in which these words are something else.
var notAService = map[string]string{
	"internal/service/service.go":                          "here they stand",
	"internal/kubeletconfig/effectfields.go":               "texts of who uses a field, one or many",
	"internal/kubeletconfig/effectflags.go":                "as in effectfields.go",
	"internal/kubeletconfig/effectgates.go":                "as in effectfields.go",
	"services/gateway/internal/access/attributes.go":       "resources of the node API",
	"services/gateway/internal/httpmetrics/httpmetrics.go": "paths of the node API",
	"services/podsync/internal/desired/validate/volume.go": "a field of a volume",
}

// enough of the five, one after the other, are a list of them.
const enough = 4

// named are where a file has the name of a service as a text of its own, or most of them
// in a list.
func named(fset *token.FileSet, file *ast.File) (wrong []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field:
			return false // a path, a tag
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && slices.Contains(service.All(), text) {
				wrong = append(wrong, fmt.Sprintf("%s: %q is service.%s%s", fset.Position(n.Pos()), text, strings.ToUpper(text[:1]), text[1:]))
			}
		case *ast.CompositeLit:
			some := map[string]bool{}
			for _, e := range n.Elts {
				if s, ok := e.(*ast.SelectorExpr); ok {
					if p, ok := s.X.(*ast.Ident); ok && p.Name == "service" {
						some[s.Sel.Name] = true
					}
				}
			}
			if len(some) >= enough {
				wrong = append(wrong, fmt.Sprintf("%s: this is service.All, or another list of package service", fset.Position(n.Pos())))
			}
		}
		return true
	})
	return wrong
}

func TestTheNamesOfTheServicesStandOnce(t *testing.T) {
	fset := token.NewFileSet()
	all := sources(t, fset)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if notAService[name] != "" {
			continue
		}
		for _, wrong := range named(fset, all[name]) {
			t.Error(wrong)
		}
	}
	for name := range notAService {
		if all[name] == nil {
			t.Errorf("there is no %s, in which these words are something else", name)
		}
	}
}

func TestANameOfAServiceThatIsWrittenOutIsFound(t *testing.T) {
	for text, want := range map[string]string{
		`import "stats"`: "",
		"type t struct { Probes int `json:\"probes\"` }": "",
		`var v = "podsync"`:                "service.Podsync",
		`var v = []string{"a", "gateway"}`: "service.Gateway",
		`var v = "the podsync"`:            "",
		`var v = []string{service.Podsync, service.Stats, service.Probes, service.Gateway}`:                             "service.All",
		`var v = []string{service.Podsync, service.Stats}`:                                                              "",
		`var v = map[string]int{service.Podsync: 1, service.Stats: 2, service.Probes: 3, service.Gateway: 4, "one": 5}`: "",
	} {
		fset, file := parse(t, "package p\n\n"+text+"\n")
		if got := strings.Join(named(fset, file), "\n"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s\n%q, want %q", text, got, want)
		}
	}
}
