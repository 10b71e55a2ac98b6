package test_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A page of results that the index does not name is one of which nobody can say
// whether it is current.
func TestEachPageOfResultsIsInTheIndex(t *testing.T) {
	dir := filepath.Join("..", "docs", "results")
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := os.ReadDir(dir)
	if err != nil || len(pages) < 10 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		if name := page.Name(); name != "README.md" && !page.IsDir() && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/results/README.md does not say what %s is: name it, as the current run or one before", name)
		}
	}
}
