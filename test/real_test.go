package test_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatAsksForRealPartsIsFoundByTheMakefile: `make node` runs the packages of which a
// test file imports realtest. Tests that got there by another package would be skipped
// everywhere, and nobody would see it.
func TestWhatAsksForRealPartsIsFoundByTheMakefile(t *testing.T) {
	root, own := "..", filepath.Join("..", "test", "harness", "realtest")
	importing := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (path == own || strings.HasPrefix(d.Name(), ".") && path != root) {
			return orSkip(err)
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || path == filepath.Join(root, "test", "real_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		imports := bytes.Contains(text, []byte(`polylet/test/harness/realtest"`))
		switch {
		case imports && (!strings.HasSuffix(path, "_test.go") || !strings.HasPrefix(path, filepath.Join(root, "test")+"/")):
			t.Errorf("%s imports realtest, and make node does not look there", path)
		case imports:
			importing++
		case bytes.Contains(text, []byte(`env("POLYLET_NODE_TESTS"`)), bytes.Contains(text, []byte(`Env("POLYLET_NODE_TESTS"`)):
			t.Errorf("%s goes by POLYLET_NODE_TESTS itself: realtest.Asked does, so that make node finds it", path)
		}
		return nil
	})
	if err != nil || importing < 5 {
		t.Errorf("%d files were found, %v", importing, err)
	}
}
