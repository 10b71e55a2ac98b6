package podsync_test

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEachTextOfAVolumesFailureHasACauseOrIsKnownToHaveNone: what is to be done about a volume
// is told by the cause that its error is given where it arises. Who writes a new error into
// storage decides here: give it a podstate.VolumeCause, or list it as one about which nothing
// better can be said than that its text is to be read.
func TestEachTextOfAVolumesFailureHasACauseOrIsKnownToHaveNone(t *testing.T) {
	found := map[string]string{}
	err := filepath.WalkDir("internal/storage", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			for _, text := range textsWithoutCause(file) {
				found[text] = path
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	known := knownTexts(t, filepath.Join("testdata", "volumetexts.txt"))
	for _, text := range slices.Sorted(maps.Keys(found)) {
		if !known[text] {
			t.Errorf("%s has a new error: give it a podstate.VolumeCause, or list it in testdata/volumetexts.txt:\n%s", found[text], text)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(known)) {
		if found[text] == "" {
			t.Errorf("testdata/volumetexts.txt lists an error that is no more, or has a cause now:\n%s", text)
		}
	}
}

// textsWithoutCause are those of the errors that a file makes of nothing but words, and to which
// it gives no cause in the same expression.
func textsWithoutCause(file *ast.File) (texts []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		on, method := called(call)
		switch {
		case method == "Wrap" && strings.HasPrefix(on, "Volume"), method == "Wrap" && on == "why":
			return false
		case on+"."+method != "errors.New" && on+"."+method != "fmt.Errorf":
			return true
		}
		if text := literal(call.Args[0]); text != "" && !strings.Contains(text, "%w") {
			texts = append(texts, text)
		}
		return true
	})
	return texts
}

// called is the last name before a call's dot, and the one behind it.
func called(call *ast.CallExpr) (on, method string) {
	sel, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return "", ""
	}
	switch x := sel.X.(type) {
	case *ast.Ident:
		on = x.Name
	case *ast.SelectorExpr:
		on = x.Sel.Name
	}
	return on, sel.Sel.Name
}

// literal is a text that stands in the source; empty for what is put together.
func literal(e ast.Expr) string {
	lit, is := e.(*ast.BasicLit)
	if !is {
		return ""
	}
	text, _ := strconv.Unquote(lit.Value)
	return text
}

func knownTexts(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	known := map[string]bool{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			known[line] = true
		}
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	return known
}
