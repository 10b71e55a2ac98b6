package podsync_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// surface looks for types of internal packages in what a package shows of itself.
type surface struct {
	internal map[string]bool      // the names that the file at hand has for such packages
	types    map[string]ast.Expr  // the package's own types
	of       map[string]*ast.File // where each stands
	seen     map[string]bool      // own types that were looked at
	wrong    []string
}

// shownOf are the types of internal packages that exported types, functions and methods
// show. Fields and methods that are not exported are nobody's business.
func shownOf(files ...*ast.File) []string {
	s := &surface{types: map[string]ast.Expr{}, of: map[string]*ast.File{}, seen: map[string]bool{}}
	for _, file := range files {
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				for _, spec := range g.Specs {
					if t, ok := spec.(*ast.TypeSpec); ok {
						s.types[t.Name.Name], s.of[t.Name.Name] = t.Type, file
					}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.types)) {
		if ast.IsExported(name) {
			s.own(name)
		}
	}
	for _, file := range files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.IsExported() && (f.Recv == nil || ast.IsExported(receiver(f.Recv.List[0].Type))) {
				s.in(file, f.Name.Name, f.Type)
			}
		}
	}
	return s.wrong
}

func receiver(of ast.Expr) string {
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	name, _ := of.(*ast.Ident)
	return name.String()
}

// own looks at one of the package's own types, once.
func (s *surface) own(name string) {
	if t, is := s.types[name]; is && !s.seen[name] {
		s.seen[name] = true
		s.in(s.of[name], name, t)
	}
}

func (s *surface) in(file *ast.File, what string, of ast.Expr) {
	before := s.internal
	s.internal = map[string]bool{}
	for _, spec := range file.Imports {
		from, _ := strconv.Unquote(spec.Path.Value)
		if name := path.Base(from); strings.Contains(from, "/internal/") && !strings.HasPrefix(from, "github.com/polylet/polylet/internal/") {
			if spec.Name != nil {
				name = spec.Name.Name
			}
			s.internal[name] = true
		}
	}
	s.look(what, of)
	s.internal = before
}

func (s *surface) look(what string, of ast.Node) {
	switch t := of.(type) {
	case *ast.StructType:
		s.exported(what, t.Fields)
	case *ast.InterfaceType:
		s.exported(what, t.Methods)
	case *ast.FuncType:
		for _, list := range []*ast.FieldList{t.Params, t.Results} {
			if list != nil {
				for _, field := range list.List {
					s.look(what, field.Type)
				}
			}
		}
	case *ast.SelectorExpr:
		if p, ok := t.X.(*ast.Ident); ok && s.internal[p.Name] {
			s.wrong = append(s.wrong, fmt.Sprintf("%s shows %s.%s, which nobody else can name", what, p.Name, t.Sel.Name))
		}
	case *ast.Ident:
		s.own(t.Name)
	default: // pointers, maps, what has type parameters …
		ast.Inspect(of, func(n ast.Node) bool {
			if n == nil || n == of {
				return n != nil
			}
			s.look(what, n)
			return false
		})
	}
}

// exported looks at the fields or methods that are exported, or embedded.
func (s *surface) exported(what string, list *ast.FieldList) {
	for _, field := range list.List {
		if len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
			s.look(what, field.Type)
		}
	}
}

func TestWhatPodsyncShowsOfItselfIsNoTypeOfAnInternalPackage(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	for _, wrong := range shownOf(files...) {
		t.Error(wrong)
	}
}

func TestATypeOfAnInternalPackageThatIsShownIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"type Deps struct { Of in.Type }":                              "Deps shows in.Type",
		"type Deps struct { Of func(in.Type) error }":                  "Deps shows in.Type",
		"type Deps struct { Of map[string][]*in.Type }":                "Deps shows in.Type",
		"type Deps struct { in.Type }":                                 "Deps shows in.Type",
		"type Deps struct { of in.Type; other.Type }":                  "",
		"type Mounter interface { Of() (in.Type, error) }":             "Mounter shows in.Type",
		"type Mounter = in.Type":                                       "Mounter shows in.Type",
		"type deps = in.Type":                                          "",
		"type deps = in.Type; type Config struct { Of []deps }":        "deps shows in.Type",
		"func New(of in.Type) {}":                                      "New shows in.Type",
		"func New() { var _ in.Type }":                                 "",
		"func (s *Service) Of() in.Type { return nil }":                "Of shows in.Type",
		"func (s *service) Of() in.Type { return nil }":                "",
		"type Service struct { of *Service; Of *Service; in in.Type }": "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "p.go", `package p; import "a/internal/in"; import "a/other"; `+text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(shownOf(file), "\n"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s\n%q, want %q", text, got, want)
		}
	}
}
