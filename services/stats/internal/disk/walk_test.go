package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAWalkCountsHardLinksOnceAndFollowsNoLink(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	big := make([]byte, 1<<20)
	for _, file := range []string{filepath.Join(dir, "a", "one"), filepath.Join(outside, "other")} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, big, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Link(filepath.Join(dir, "a", "one"), filepath.Join(dir, "two")), os.Symlink(outside, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	got, err := Walk(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Inodes != 4 { // dir, a, one (= two), link
		t.Errorf("inodes %d; want 4", got.Inodes)
	}
	if got.Bytes < 1<<20 || got.Bytes > 1<<20+64<<10 {
		t.Errorf("bytes %d; want little more than 1 MiB", got.Bytes)
	}
}

func TestAWalkEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Walk(ctx, t.TempDir(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want context.Canceled", err)
	}
}

func TestFilesOfADirectoryAreCountedWithoutWhatLiesBelow(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "container"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pod.log", "container/0.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 8192), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, "pod.log")} {
		got, err := Files(path)
		if err != nil || got.Inodes != 1 || got.Bytes < 8192 || got.Bytes >= 2*8192 {
			t.Errorf("%s: %+v, %v; want the one file", path, got, err)
		}
	}
	if _, err := Files(filepath.Join(dir, "absent")); err == nil {
		t.Error("a file that is not there was measured")
	}
}
