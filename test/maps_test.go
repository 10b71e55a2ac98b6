package test_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// section is what a page has below a heading, up to the next one.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", page))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no %q", page, heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

var (
	inBackticks = regexp.MustCompile("`([a-z][a-z0-9/]*)`(?: \\(([a-z]+\\.go)\\))?")
	goFile      = regexp.MustCompile(`\b[a-z]+\.go\b`)
)

// lost are the packages below dir, and the files in them, that the last column of a
// table names and exists says are not there.
func lost(table, dir string, exists func(string) bool) (wrong []string, named int) {
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") || len(cells) < 2 {
			continue
		}
		here := cells[len(cells)-1]
		folder := ""
		for _, m := range inBackticks.FindAllStringSubmatch(here, -1) {
			named++
			if folder = path.Join(dir, m[1]); !exists(folder) {
				wrong = append(wrong, fmt.Sprintf("there is no %s, which the table names for%s", folder, cells[0]))
			}
			if m[2] != "" && !exists(path.Join(folder, m[2])) {
				wrong = append(wrong, fmt.Sprintf("there is no %s/%s, which the table names for%s", folder, m[2], cells[0]))
			}
		}
		if _, files, after := strings.Cut(here, "`: "); after && folder != "" { // `storage/csi`: attach.go, stage.go
			for _, file := range goFile.FindAllString(files, -1) {
				if !exists(path.Join(folder, file)) {
					wrong = append(wrong, fmt.Sprintf("there is no %s/%s, which the table names for%s", folder, file, cells[0]))
				}
			}
		}
	}
	return wrong, named
}

func isThere(name string) bool {
	_, err := os.Stat(filepath.Join("..", filepath.FromSlash(name)))
	return err == nil
}

func TestPodsyncsMapNamesWhatIsThere(t *testing.T) {
	wrong, named := lost(section(t, "services/podsync/README.md", "## Where is it?"), "services/podsync/internal", isThere)
	if named < 40 {
		t.Fatalf("only %d packages were found in the table", named)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

func TestAMapThatNamesWhatIsGoneIsFound(t *testing.T) {
	const table = "| in the kubelet | here |\n|---|---|\n| PLEG | `runtime/observe` |\n| worker | `worker` (stop.go), the planner's `State.Volumes` |\n| CSI | `csi`: attach.go, stage.go |\n"
	for gone, want := range map[string]string{
		"": "", "a/runtime/observe": "PLEG", "a/worker/stop.go": "worker", "a/csi/stage.go": "CSI", "a/State.Volumes": "",
	} {
		wrong, named := lost(table, "a", func(name string) bool { return name != gone })
		if got := strings.Join(wrong, "\n"); (got == "") != (want == "") || !strings.Contains(got, want) || named != 3 {
			t.Errorf("without %s: %q of %d, want %q", gone, got, named, want)
		}
	}
}

// The architecture names each package of internal/, and no other.
func TestTheArchitectureNamesEachPackageOfInternal(t *testing.T) {
	text := section(t, "ARCHITECTURE.md", "## Rooms")
	_, table, found := strings.Cut(text, "\n`internal/`:\n")
	if !found {
		t.Fatal("ARCHITECTURE.md has no table of internal/")
	}
	var named []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range inBackticks.FindAllStringSubmatch(cells[1], -1) {
				named = append(named, m[1])
			}
		}
	}
	entries, err := os.ReadDir("../internal")
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if folders = append(folders, e.Name()); !slices.Contains(named, e.Name()) {
			t.Errorf("ARCHITECTURE.md does not say what internal/%s owns", e.Name())
		}
	}
	for _, name := range named {
		if !slices.Contains(folders, name) {
			t.Errorf("ARCHITECTURE.md has internal/%s, which is not there", name)
		}
	}
	for _, m := range regexp.MustCompile("`((?:services|internal)/[a-z/]+)`").FindAllStringSubmatch(text, -1) {
		if !isThere(m[1]) {
			t.Errorf("ARCHITECTURE.md names %s, which is not there", m[1])
		}
	}
}
