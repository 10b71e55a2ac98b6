package apparmor

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheKernelSaysWhetherItEnforcesAppArmor(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]bool{"Y\n": true, "N\n": false, "": false} {
		path := filepath.Join(dir, "enabled")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := enabled(path); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if enabled(filepath.Join(dir, "none")) {
		t.Error("a kernel without AppArmor enforces it")
	}
	if !enabled(dir) {
		t.Error("a kernel that does not tell is taken for one without AppArmor")
	}
}
