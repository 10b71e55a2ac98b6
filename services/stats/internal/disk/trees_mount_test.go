package disk

import (
	"os"
	"path/filepath"
	"testing"
)

// A pod would be evicted for what others have on the node's disk.
func TestADirectoryWhoseMountIsMissingHasOnlyWhatLiesInIt(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	measured := func(d Directory) Measured {
		got, err := Measure(t.Context(), d, func(Measured) {})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := measured(Directory{Path: dir, FilesystemOnly: true, OwnMount: true}); got.Bytes < 1<<20 || got.Bytes > 1<<20+64<<10 || got.Inodes != 2 {
		t.Errorf("%+v; want the file and its directory", got.Tree)
	}
	if got := measured(Directory{Path: "/proc", FilesystemOnly: true, OwnMount: true}); got.Bytes != got.Filesystem.Used() || got.Inodes != got.Filesystem.InodesUsed() {
		t.Errorf("a mount of its own has %+v", got)
	}
	if got := measured(Directory{Path: dir, FilesystemOnly: true}); got.Bytes != got.Filesystem.Used() {
		t.Errorf("the filesystem that a volume of a claim is on: %+v", got)
	}
}
