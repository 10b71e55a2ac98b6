package podsync_test

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

// wings are the folders of internal/ from the top down: each imports only what
// stands below it. The picture in README.md is drawn from them.
var wings = []string{
	"server", "lifecycle", "admission", "housekeeping", "storage", "report", "runtime", "podstate", "resources", "desired", "cluster", "host", "checkpoint", "metrics", "reason", "podutil",
}

const (
	inside  = "github.com/polylet/polylet/services/podsync/internal/"
	planner = "lifecycle/worker/internal/plan"
)

// room is a package below internal/.
type room struct {
	path    string // below internal/
	comment string
	imports []string // other rooms
}

func (r room) wing() string { return wingOf(r.path) }

func wingOf(path string) string {
	wing, _, _ := strings.Cut(path, "/")
	return wing
}

// rooms are all packages below internal/ that ship, by path.
func rooms(t *testing.T) []room {
	t.Helper()
	byPath := map[string]*room{}
	err := filepath.WalkDir("internal", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		path := strings.TrimPrefix(filepath.Dir(file), "internal/")
		if wingOf(path) == "sim" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		r := byPath[path]
		if r == nil {
			r = &room{path: path}
			byPath[path] = r
		}
		r.add(parsed)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []room
	for _, r := range byPath {
		slices.Sort(r.imports)
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b room) int { return strings.Compare(a.path, b.path) })
	return out
}

func (r *room) add(file *ast.File) {
	if file.Doc != nil {
		r.comment += file.Doc.Text()
	}
	for _, im := range file.Imports {
		path, err := strconv.Unquote(im.Path.Value)
		if other, ok := strings.CutPrefix(path, inside); err == nil && ok && !slices.Contains(r.imports, other) {
			r.imports = append(r.imports, other)
		}
	}
}

// climbs says what is wrong with the imports of these rooms.
func climbs(all []room) []string {
	var wrong []string
	for _, r := range all {
		at := slices.Index(wings, r.wing())
		if at < 0 {
			wrong = append(wrong, fmt.Sprintf("%s is in no wing: give it a place, or wings_test.go the wing", r.path))
			continue
		}
		for _, other := range r.imports {
			if to := slices.Index(wings, wingOf(other)); to < at {
				wrong = append(wrong, fmt.Sprintf("%s imports %s, which is drawn above it: move what both need below, or declare an interface here", r.path, other))
			}
			if other == planner && r.path != "lifecycle/worker" {
				wrong = append(wrong, fmt.Sprintf("%s imports the planner: the worker alone does; what others say of a pod is in podstate", r.path))
			}
		}
	}
	return wrong
}

func TestAWingImportsOnlyWhatIsDrawnBelowIt(t *testing.T) {
	for _, wrong := range climbs(rooms(t)) {
		t.Error(wrong)
	}
}

func TestAnArrowThatClimbsIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		room room
		want string
	}{
		"upwards":           {room{path: "runtime/cri", imports: []string{"report/status"}}, "drawn above it"},
		"downwards":         {room{path: "report/status", imports: []string{"runtime/cri", "podutil"}}, ""},
		"in one wing":       {room{path: "report/status", imports: []string{"report/status/equal"}}, ""},
		"a wing of its own": {room{path: "other/thing"}, "in no wing"},
		"the planner":       {room{path: "lifecycle/execute", imports: []string{planner}}, "the worker alone"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(climbs([]room{tc.room}), "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestEachPackageSaysWhatItOwnsAndMustNeverDo(t *testing.T) {
	for _, r := range rooms(t) {
		if !strings.HasPrefix(r.comment, "Package ") || !strings.Contains(r.comment, "never") {
			t.Errorf("%s: its comment does not say what it must never do:\n%s", r.path, r.comment)
		}
	}
}

const (
	begin = "<!-- wings: drawn by `go test ./services/podsync -run Wings -update` -->\n"
	end   = "<!-- end of wings -->\n"
)

func TestTheReadmeShowsTheWingsAsTheyAre(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(readme), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("README.md has no part between %q and %q", begin, end)
	}
	golden.Equal(t, "README.md", []byte(before+begin+picture(rooms(t))+end+after))
}

// picture draws a wing in each line, from the top down: its packages, and which
// wings below it they import.
func picture(all []room) string {
	var b bytes.Buffer
	b.WriteString("\n| wing | packages | imports |\n|---|---|---|\n")
	for _, wing := range wings {
		var packages, below []string
		for _, r := range all {
			if r.wing() != wing {
				continue
			}
			if short := strings.TrimPrefix(r.path, wing+"/"); short != wing {
				packages = append(packages, "`"+short+"`")
			}
			for _, other := range r.imports {
				if w := wingOf(other); w != wing && !slices.Contains(below, w) {
					below = append(below, w)
				}
			}
		}
		slices.SortFunc(below, func(a, b string) int { return slices.Index(wings, a) - slices.Index(wings, b) })
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", wing, strings.Join(packages, ", "), strings.Join(below, ", "))
	}
	b.WriteString("\n")
	return b.String()
}
