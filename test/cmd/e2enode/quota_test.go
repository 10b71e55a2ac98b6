package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOnlyTheLeastQuotaIsLifted(t *testing.T) {
	root := t.TempDir()
	quotas := map[string]string{"a.slice": leastQuota + "\n", "a.slice/b.scope": leastQuota + "\n", "c.slice": "2000 100000\n", "d.slice": "max 100000\n"}
	for dir, quota := range quotas {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "cpu.max"), []byte(quota), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := liftLeast(root); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"a.slice": noQuota, "a.slice/b.scope": noQuota, "c.slice": "2000 100000\n", "d.slice": "max 100000\n"} {
		if got, err := os.ReadFile(filepath.Join(root, dir, "cpu.max")); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v; want %q", dir, got, err, want)
		}
	}
}

func TestWithoutPodsThereIsNoQuotaToLift(t *testing.T) {
	if err := liftLeast(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
}
