package test_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sources are the files of what ships, by path from the repository's root.
func sources(t *testing.T, fset *token.FileSet) map[string]*ast.File {
	t.Helper()
	out := map[string]*ast.File{}
	for _, dir := range []string{"cmd", "internal", "services"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/gen/") || strings.Contains(path, "/testkit/") {
				return err
			}
			name, err := filepath.Rel("..", path)
			if err != nil {
				return err
			}
			out[name], err = parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(out) < 500 {
		t.Fatalf("only %d files were found", len(out))
	}
	return out
}

// parse reads a file that a test has made up.
func parse(t *testing.T, text string) (*token.FileSet, *ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return fset, file
}

// heldByComment is how a comment says that a function is called with a lock held.
var heldByComment = regexp.MustCompile(`(?i)\bcaller holds|\b(under|with) [A-Za-z.]*\bmu\b|\bmu (is )?held|\block (is )?held\b`)

// locking says what is wrong in a file with CONTRIBUTING.md's rule about Locked: who is
// called with a lock held says so in its name, and whoever calls it has the lock.
func locking(fset *token.FileSet, file *ast.File) (wrong []string) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		name := f.Name.Name
		if !strings.HasSuffix(name, "Locked") && heldByComment.MatchString(f.Doc.Text()) {
			wrong = append(wrong, fmt.Sprintf("%s: %s is called with a lock held by its comment: let its name end in Locked", fset.Position(f.Pos()), name))
		}
		if strings.HasSuffix(name, "Locked") || strings.HasPrefix(strings.ToLower(name), "new") {
			continue // nobody else has what is being made
		}
		locked := false
		ast.Inspect(f.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch called := calledName(call); {
			case called == "Lock" || called == "RLock" || called == "TryLock":
				locked = true
			case strings.HasSuffix(called, "Locked") && !locked:
				wrong = append(wrong, fmt.Sprintf("%s: %s calls %s and has taken no lock", fset.Position(call.Pos()), name, called))
			}
			return true
		})
	}
	return wrong
}

func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

func TestWhatIsCalledWithALockHeldSaysSoInItsName(t *testing.T) {
	fset := token.NewFileSet()
	all := sources(t, fset)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, wrong := range locking(fset, all[name]) {
			t.Error(wrong)
		}
	}
}

func TestALockThatOnlyACommentSpeaksOfIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"// f adds. The caller holds mu.\nfunc (s *S) f() {}":           "let its name end in Locked",
		"// f adds; under mu.\nfunc (s *S) f() {}":                      "let its name end in Locked",
		"// f adds, with s.mu held.\nfunc (s *S) f() {}":                "let its name end in Locked",
		"// fLocked adds. The caller holds mu.\nfunc fLocked() {}":      "",
		"// f holds a lock of the machine's.\nfunc f() {}":              "",
		"func (s *S) f() { s.addLocked() }":                             "has taken no lock",
		"func (s *S) f() { s.addLocked(); s.mu.Lock() }":                "has taken no lock",
		"func (s *S) f() { s.mu.Lock(); s.addLocked() }":                "",
		"func (s *S) f() { s.mu.RLock(); go func() { addLocked() }() }": "",
		"func (s *S) fLocked() { s.addLocked() }":                       "",
		"func NewS() { s.addLocked() }":                                 "",
	} {
		fset, file := parse(t, "package p\n\n"+text+"\n")
		if got := strings.Join(locking(fset, file), "\n"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s\n%q, want %q", text, got, want)
		}
	}
}

// bells are where a file writes out what wake.Signal's Set does.
func bells(fset *token.FileSet, file *ast.File) (found []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectStmt)
		if !ok || len(s.Body.List) != 2 {
			return true
		}
		sends, otherwise := false, false
		for _, c := range s.Body.List {
			clause, _ := c.(*ast.CommClause)
			if len(clause.Body) > 0 {
				return true
			}
			send, is := clause.Comm.(*ast.SendStmt)
			otherwise = otherwise || clause.Comm == nil
			sends = sends || is && isEmptyStruct(send.Value)
		}
		if sends && otherwise {
			found = append(found, fset.Position(s.Pos()).String())
		}
		return true
	})
	return found
}

func isEmptyStruct(e ast.Expr) bool {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return false
	}
	s, ok := lit.Type.(*ast.StructType)
	return ok && len(s.Fields.List) == 0
}

func TestWhatWakesAnotherGoroutineIsASignalOfPackageWake(t *testing.T) {
	fset := token.NewFileSet()
	all := sources(t, fset)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, "internal/wake/") {
			continue
		}
		for _, at := range bells(fset, all[name]) {
			t.Errorf("%s: it wakes somebody: make it a wake.Signal, and Set it", at)
		}
	}
}

func TestABellThatIsWrittenOutIsFound(t *testing.T) {
	for text, want := range map[string]int{
		"select { case c <- struct{}{}: default: }":           1,
		"select { default: case c <- struct{}{}: }":           1,
		"select { case c <- struct{}{}: f(); default: }":      0,
		"select { case c <- struct{}{}: case <-ctx.Done(): }": 0,
		"select { case c <- 1: default: }":                    0,
		"select { case <-c: default: }":                       0,
	} {
		fset, file := parse(t, "package p\n\nfunc f() { "+text+" }\n")
		if got := bells(fset, file); len(got) != want {
			t.Errorf("%s: %q, want %d", text, got, want)
		}
	}
}

// logPairs calls each with the keys of a file's log lines, and what stands under them.
func logPairs(file *ast.File, each func(key string, value ast.Expr)) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		first := map[string]int{"Info": 1, "Error": 2, "WithValues": 0}
		at, logs := first[calledName(call)]
		for ; logs && at < len(call.Args); at += 2 {
			if lit, is := call.Args[at].(*ast.BasicLit); is && lit.Kind == token.STRING {
				if key, err := strconv.Unquote(lit.Value); err == nil {
					var value ast.Expr
					if at+1 < len(call.Args) {
						value = call.Args[at+1]
					}
					each(key, value)
				}
			}
		}
		return true
	})
}

// logKeys are the keys of a file's log lines.
func logKeys(file *ast.File) (keys []string) {
	logPairs(file, func(key string, _ ast.Expr) { keys = append(keys, key) })
	return keys
}

// podsAsText are the log lines of a file in which a pod is something else than what
// klog.KObj or KRef makes of it, or a variable.
func podsAsText(fset *token.FileSet, file *ast.File) (wrong []string) {
	logPairs(file, func(key string, value ast.Expr) {
		if key != "pod" {
			return
		}
		switch v := value.(type) {
		case *ast.CallExpr:
			if called := calledName(v); called == "KObj" || called == "KRef" {
				return
			}
		case *ast.Ident:
			return
		}
		wrong = append(wrong, fmt.Sprintf("%s: under the key pod stands what klog.KObj or klog.KRef gives", fset.Position(value.Pos())))
	})
	return wrong
}

func TestAPodInALogLineIsWhatKlogMakesOfIt(t *testing.T) {
	fset := token.NewFileSet()
	all := sources(t, fset)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, wrong := range podsAsText(fset, all[name]) {
			t.Error(wrong)
		}
	}
}

func TestAPodThatIsLoggedAsTextIsFound(t *testing.T) {
	for text, want := range map[string]int{
		`log.Info("a", "pod", klog.KObj(pod))`:                        0,
		`log.Error(err, "a", "container", c, "pod", klog.KRef(n, m))`: 0,
		`log.Info("a", "pod", ref)`:                                   0,
		`log.Info("a", "pod", pod.Namespace+"/"+pod.Name)`:            1,
		`log.WithValues("pod", peer.Pod)`:                             1,
		`log.Info("a", "pods", len(pods))`:                            0,
	} {
		fset, file := parse(t, "package p\n\nfunc f() { "+text+" }\n")
		if got := podsAsText(fset, file); len(got) != want {
			t.Errorf("%s: %q, want %d", text, got, want)
		}
	}
}

// inSoMany packages a log key stands in CONTRIBUTING.md.
const inSoMany = 3

func TestALogKeyOfManyPackagesStandsInTheTable(t *testing.T) {
	page, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "### Log keys")
	table, _, _ = strings.Cut(table, "\n## ")
	where := map[string]map[string]bool{}
	for name, file := range sources(t, token.NewFileSet()) {
		for _, key := range logKeys(file) {
			if where[key] == nil {
				where[key] = map[string]bool{}
			}
			where[key][filepath.Dir(name)] = true
		}
	}
	if len(where["pod"]) < 10 {
		t.Fatalf("the key pod was found in %v alone", where["pod"])
	}
	for key, packages := range where {
		if len(packages) >= inSoMany && !strings.Contains(table, "`"+key+"`") {
			t.Errorf("log lines of %v have the key %q: say in CONTRIBUTING.md what it is, or use one of those there", slices.Sorted(maps.Keys(packages)), key)
		}
	}
	for other, key := range map[string]string{"error": "err", "dir": "directory", "uid": "podUID or user", "namespace": "pod or object", "duration": "took or after"} {
		if packages := where[other]; len(packages) > 0 {
			t.Errorf("log lines of %v have the key %q: it is %s", slices.Sorted(maps.Keys(packages)), other, key)
		}
	}
}

func TestTheKeysOfALogLineAreFound(t *testing.T) {
	_, file := parse(t, `package p

func f() {
	log.Info("text", "a", 1, "b", err)
	klog.FromContext(ctx).V(2).Error(err, "text", "c", "no key")
	log.WithValues("d", 1)
	fmt.Errorf("text", "e")
}
`)
	if got := logKeys(file); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("%q", got)
	}
}
