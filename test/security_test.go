package test_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each row of docs/security.md names tests that are there, or says that there
// are none and what is left.
func TestTheSecurityPageNamesTestsThatExist(t *testing.T) {
	const docs = "../docs"
	page, err := os.ReadFile(filepath.Join(docs, "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\[((?:Test|Fuzz)\w+)\]\(([^)]+_test\.go)\)`)
	name := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	rows := 0
	for line := range strings.Lines(string(page)) {
		links := link.FindAllStringSubmatch(line, -1)
		if named := name.FindAllString(line, -1); len(named) != len(links) {
			t.Errorf("%q names %d tests and links %d", line, len(named), len(links))
		}
		for _, l := range links {
			source, err := os.ReadFile(filepath.Join(docs, l[2]))
			if err != nil || !strings.Contains(string(source), "\nfunc "+l[1]+"(") {
				t.Errorf("%s is not in %s: %v", l[1], l[2], err)
			}
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
