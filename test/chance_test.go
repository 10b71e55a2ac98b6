package test_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// generous is the least that a test gives the real time to come true in: it costs nothing
// when all is well, and a busy machine stands still for seconds.
const generous = 30 * time.Second

// tested are the files of tests, by folder; not of those that hold real parts to their times.
func tested(t *testing.T, fset *token.FileSet) map[string][]*ast.File {
	t.Helper()
	out, files := map[string][]*ast.File{}, 0
	for _, dir := range []string{"cmd", "internal", "services", "test"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && slices.Contains([]string{"../test/node", "../test/vm", "../test/kubeadm"}, filepath.ToSlash(path)) {
				return filepath.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return nil
			}
			// With its objects: what a name stands for is asked below.
			file, err := parser.ParseFile(fset, path, nil, 0) //nolint:staticcheck // a file by itself needs no types
			out[filepath.Dir(path)] = append(out[filepath.Dir(path)], file)
			files++
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 500 {
		t.Fatalf("only %d files were found", files)
	}
	return out
}

// is says whether an expression is a name of a package: time.Now, or a call of it.
func is(e ast.Expr, pkg string, names ...string) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		e = call.Fun
	}
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := s.X.(*ast.Ident)
	return ok && of.Name == pkg && slices.Contains(names, s.Sel.Name)
}

// any says whether something below a node is so.
func some(n ast.Node, so func(ast.Node) bool) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		found = found || n != nil && so(n)
		return !found
	})
	return found
}

// hasty says whether an expression is a time that is written out and less than generous.
func hasty(e ast.Expr) bool {
	n, unit := 1.0, e
	if product, ok := e.(*ast.BinaryExpr); ok && product.Op == token.MUL {
		number, ok := product.X.(*ast.BasicLit)
		if !ok {
			return false
		}
		n, _ = strconv.ParseFloat(number.Value, 64)
		unit = product.Y
	}
	for name, of := range map[string]time.Duration{"Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second} {
		if is(unit, "time", name) {
			return n*float64(of) < float64(generous)
		}
	}
	return false
}

// fails says whether a test fails in some of these statements.
func fails(body []ast.Stmt) bool {
	return slices.ContainsFunc(body, func(s ast.Stmt) bool {
		return some(s, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			return ok && slices.Contains([]string{"Error", "Errorf", "Fatal", "Fatalf", "Fail", "FailNow"}, calledName(call)) && !is(call, "errors", "Error") && !is(call, "fmt", "Errorf")
		})
	})
}

// assigned is what a name was given where it was made; nil where that is not seen.
func assigned(e ast.Expr) ast.Expr {
	id, ok := e.(*ast.Ident)
	if !ok || id.Obj == nil {
		return nil
	}
	made, ok := id.Obj.Decl.(*ast.AssignStmt)
	if !ok || len(made.Lhs) != len(made.Rhs) {
		return nil
	}
	for i, to := range made.Lhs {
		if name, ok := to.(*ast.Ident); ok && name.Name == id.Name {
			return made.Rhs[i]
		}
	}
	return nil
}

// tooLate says whether a condition is that less than a generous time has passed.
func tooLate(n ast.Node) bool {
	switch c := n.(type) {
	case *ast.BinaryExpr: // time.Since(began) > 5*time.Second
		passed := is(c.X, "time", "Since") || assigned(c.X) != nil && is(assigned(c.X), "time", "Since")
		return (c.Op == token.GTR || c.Op == token.GEQ) && passed && hasty(c.Y)
	case *ast.CallExpr: // time.Now().After(deadline)
		after, ok := c.Fun.(*ast.SelectorExpr)
		if !ok || after.Sel.Name != "After" || !is(after.X, "time", "Now") || len(c.Args) != 1 {
			return false
		}
		made, ok := assigned(c.Args[0]).(*ast.CallExpr)
		return ok && calledName(made) == "Add" && len(made.Args) == 1 && hasty(made.Args[0])
	}
	return false
}

// impatient are the places of a folder where a test fails because something took less than a
// generous time. What runs in a bubble has a time of its own.
func impatient(fset *token.FileSet, files []*ast.File) (wrong []string) {
	var functions []*ast.FuncDecl
	bubbles := map[string]bool{}
	inBubble := func(n ast.Node) bool { e, ok := n.(ast.Expr); return ok && is(e, "synctest", "Test", "Wait") }
	for _, file := range files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				functions = append(functions, f)
				bubbles[f.Name.Name] = bubbles[f.Name.Name] || some(f, inBubble)
			}
		}
	}
	for _, f := range functions {
		if bubbles[f.Name.Name] || some(f.Body, func(n ast.Node) bool { call, ok := n.(*ast.CallExpr); return ok && bubbles[calledName(call)] }) {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			found := false
			switch s := n.(type) {
			case *ast.CommClause: // case <-time.After(5 * time.Second):
				found = s.Comm != nil && fails(s.Body) && some(s.Comm, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					return ok && is(call, "time", "After") && hasty(call.Args[0])
				})
			case *ast.IfStmt:
				found = fails(s.Body.List) && some(s.Cond, tooLate)
			}
			if found {
				wrong = append(wrong, fmt.Sprintf("%s: %s fails on a machine that stands still for a moment: give it %s at least, or wait for what happens", fset.Position(n.Pos()), f.Name.Name, generous))
			}
			return true
		})
	}
	return wrong
}

func TestWhatTakesRealTimeHasEnoughOfIt(t *testing.T) {
	fset := token.NewFileSet()
	for _, files := range tested(t, fset) {
		for _, wrong := range impatient(fset, files) {
			t.Error(wrong)
		}
	}
}

// isMap says whether an expression is a map that is written out, or a name of one.
func isMap(e ast.Expr) bool {
	if e == nil {
		return false
	}
	if table, ok := e.(*ast.CompositeLit); ok {
		_, is := table.Type.(*ast.MapType)
		return is
	}
	return isMap(assigned(e))
}

// entangled are the places where a case of a table that is a map, whose order is chance,
// changes what the next one begins with, or does not.
func entangled(fset *token.FileSet, file *ast.File) (wrong []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		loop, ok := n.(*ast.RangeStmt)
		if !ok || !isMap(loop.X) {
			return true
		}
		ast.Inspect(loop.Body, func(n ast.Node) bool {
			only, ok := n.(*ast.IfStmt)
			if !ok {
				return true
			}
			ast.Inspect(only.Body, func(n ast.Node) bool {
				set, ok := n.(*ast.AssignStmt)
				if !ok || set.Tok != token.ASSIGN {
					return true
				}
				for _, to := range set.Lhs {
					id, ok := to.(*ast.Ident)
					if ok && id.Obj != nil && id.Obj.Pos() < loop.Pos() && !some(set, func(n ast.Node) bool { same, ok := n.(*ast.Ident); return ok && same != id && same.Obj == id.Obj }) {
						wrong = append(wrong, fmt.Sprintf("%s: a case of a map sets %s, which the next one has, if it is one behind it: make it in each case", fset.Position(set.Pos()), id.Name))
					}
				}
				return true
			})
			return false
		})
		return true
	})
	return wrong
}

func TestNoCaseOfAMapLeavesTheNextSomething(t *testing.T) {
	fset := token.NewFileSet()
	for _, files := range tested(t, fset) {
		for _, file := range files {
			for _, wrong := range entangled(fset, file) {
				t.Error(wrong)
			}
		}
	}
}

// inFunction is a file with a function of these statements, and bubble beside it.
func inFunction(t *testing.T, statements string) (*token.FileSet, *ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p_test.go", "package p\nfunc f() {\n"+statements+"\n}\nfunc bubble() { synctest.Test(t, nil) }", 0)
	if err != nil {
		t.Fatal(err)
	}
	return fset, file
}

func TestATestThatIsHastyIsFound(t *testing.T) {
	for statements, found := range map[string]bool{
		"select { case <-time.After(5 * time.Second): t.Error() }":                                  true,
		"select { case <-time.After(time.Second): if x { t.Fatal() } }":                             true,
		"select { case <-time.After(time.Minute): t.Error() }":                                      false,
		"select { case <-time.After(5 * time.Second): return }":                                     false,
		"select { case <-time.After(limit / 2): t.Error() }":                                        false,
		"bubble(); select { case <-time.After(5 * time.Second): t.Error() }":                        false,
		"synctest.Wait(); select { case <-time.After(5 * time.Second): t.Error() }":                 false,
		"end := time.Now().Add(9 * time.Second); for { if time.Now().After(end) { t.Fatal() } }":    true,
		"for end := time.Now().Add(9 * time.Second); ; { if time.Now().After(end) { t.Fatal() } }":  true,
		"for end := time.Now().Add(30 * time.Second); ; { if time.Now().After(end) { t.Fatal() } }": false,
		"for end := time.Now().Add(9 * time.Second); ; { if time.Now().After(end) { break } }":      false,
		"if err != nil || time.Since(began) > 500*time.Millisecond { t.Error() }":                   true,
		"if took := time.Since(began); took >= 5*time.Second { t.Errorf() }":                        true,
		"if took := cputime.Of(t, nil); took > 5*time.Second { t.Errorf() }":                        false,
		"if time.Since(began) < time.Second { t.Error() }":                                          false,
		"if time.Since(began) > time.Second { err = fmt.Errorf(\"late\") }":                         false,
	} {
		fset, file := inFunction(t, statements)
		if got := impatient(fset, []*ast.File{file}); (len(got) == 1) != found || len(got) > 1 {
			t.Errorf("%s: %q", statements, got)
		}
	}
}

func TestACaseOfAMapThatLeavesTheNextSomethingIsFound(t *testing.T) {
	for statements, found := range map[string]bool{
		"c := one(); for _, other := range map[string]bool{} { if other { c = two() }; try(c) }":                 true,
		"c, cases := one(), map[string]bool{}; for _, other := range cases { if other { c = two() }; try(c) }":   true,
		"c := one(); for _, other := range []bool{} { if other { c = two() }; try(c) }":                          false,
		"for _, other := range map[string]bool{} { c := one(); if other { c = two() }; try(c) }":                 false,
		"c := one(); for _, next := range map[string]int{} { c = next; try(c) }":                                 false,
		"n := 0; for _, other := range map[string]bool{} { if other { n = n + 1 } }":                             false,
		"var all []int; for _, other := range map[string]bool{} { if other { all = append(all, 1) } }; try(all)": false,
	} {
		fset, file := inFunction(t, statements)
		if got := entangled(fset, file); (len(got) == 1) != found || len(got) > 1 {
			t.Errorf("%s: %q", statements, got)
		}
	}
}
