package process

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

func TestAFileThatWasRemovedAndIsOpenIsFoundWithWhatLiesInIt(t *testing.T) {
	dir := t.TempDir()
	for name, removed := range map[string]bool{"kept": false, "gone": true, "kept (deleted)": false} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if _, err := f.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if removed {
			if err := os.Remove(f.Name()); err != nil {
				t.Fatal(err)
			}
		}
	}
	device, err := DeviceOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	root, err := DeviceOf("/")
	if err != nil {
		t.Fatal(err)
	}
	var found []Unlinked
	all := Proc("/proc").Unlinked(t.Context(), os.Getpid(), func(u Unlinked) {
		if filepath.Dir(u.Path) == dir {
			found = append(found, u)
		}
	})
	if !all || len(found) != 1 || found[0].Path != filepath.Join(dir, "gone") || found[0].Bytes < 1<<20 || found[0].Inode.Device != device || found[0].Root != (root == device) {
		t.Errorf("%v, %+v", all, found)
	}
}

func TestWhoIsOutOfTimeSaysThatNotAllWasLookedAt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if Proc("/proc").Unlinked(ctx, os.Getpid(), func(Unlinked) {}) {
		t.Error("all was looked at")
	}
}
