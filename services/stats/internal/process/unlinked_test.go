package process

import (
	"context"
	"fmt"
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
	if !all || len(found) != 1 || found[0].Path != filepath.Join(dir, "gone") || found[0].Bytes < 1<<20 || found[0].Inode.Device != device || found[0].Root != (root == device && overlaid("/proc/self/mountinfo")) {
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

func TestARootIsOfDirectoriesLaidOverEachOtherByItsLastMount(t *testing.T) {
	const disk = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
	for name, c := range map[string]struct {
		mounts string
		want   bool
	}{
		"a disk":        {disk, false},
		"an overlay":    {"30 20 0:50 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a\n31 30 0:51 / /proc rw - proc proc rw\n", true},
		"one over it":   {disk + "30 20 0:50 / / rw - overlay overlay rw\n", true},
		"one elsewhere": {disk + "30 20 0:50 / /srv rw - overlay overlay rw\n", false},
		"by a server":   {"30 20 0:50 / / rw - fuse.fuse-overlayfs fuse-overlayfs rw\n", true},
		"btrfs":         {"30 20 0:50 /snap / rw - btrfs /dev/sdb rw\n", false},
		"no mount":      {"30 20\n", false},
	} {
		file := filepath.Join(t.TempDir(), "mountinfo")
		if err := os.WriteFile(file, []byte(c.mounts), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := overlaid(file); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if overlaid("/nowhere") {
		t.Error("of a process that ended")
	}
}

func TestWhetherAnOpenFileMayBeWrittenIsSeen(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	for flags, want := range map[int]bool{os.O_RDONLY: false, os.O_WRONLY: true, os.O_RDWR: true} {
		f, err := os.OpenFile(name, flags|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if got := writable(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); got != want {
			t.Errorf("opened with %d: %v", flags, got)
		}
		_ = f.Close()
	}
	if writable("/proc/self/fd/999999") {
		t.Error("of none")
	}
}
