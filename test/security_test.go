package test_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/testkit/golden"
)

// link is a test's name with the file that it is in.
var link = regexp.MustCompile(`\[((?:Test|Fuzz)\w+)\]\(([^)]+_test\.go)\)`)

// linked is the page with each test's link to the file that the test is in: where two
// folders have one of its name, it is that of the folder that the page names.
func linked(t *testing.T, page []byte) []byte {
	t.Helper()
	files := map[string][]string{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for path, f := range folders(t) {
		for name, text := range f {
			for _, found := range declaration.FindAllStringSubmatch(text, -1) {
				files[found[1]] = append(files[found[1]], filepath.Join("..", path, name))
			}
		}
	}
	return link.ReplaceAllFunc(page, func(found []byte) []byte {
		parts := link.FindStringSubmatch(string(found))
		test, was := parts[1], parts[2]
		at := files[test]
		if len(at) > 1 {
			at = slices.DeleteFunc(slices.Clone(at), func(file string) bool { return filepath.Dir(file) != filepath.Dir(was) })
		}
		if len(at) != 1 {
			t.Errorf("%s of %s is in %q", test, was, files[test])
			return found
		}
		return []byte("[" + test + "](" + at[0] + ")")
	})
}

// Each row of docs/security.md names tests that are there, or says that there
// are none and what is left.
func TestTheSecurityPageNamesTestsThatExist(t *testing.T) {
	const docs = "../docs"
	page, err := os.ReadFile(filepath.Join(docs, "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, filepath.Join(docs, "security.md"), linked(t, page))
	name := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	rows := 0
	for line := range strings.Lines(string(page)) {
		links := link.FindAllString(line, -1)
		if named := name.FindAllString(line, -1); len(named) != len(links) {
			t.Errorf("%q names %d tests and links %d", line, len(named), len(links))
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.Contains(line, "---") || strings.Contains(line, "| tests |") {
			continue
		}
		rows++
		if len(cells) != 4 || len(links) == 0 && (strings.TrimSpace(cells[2]) != "none" || strings.TrimSpace(cells[3]) == "") {
			t.Errorf("a row without a test says so and what is left: %q", line)
		}
	}
	if rows < 35 {
		t.Errorf("%d rows", rows)
	}
}
