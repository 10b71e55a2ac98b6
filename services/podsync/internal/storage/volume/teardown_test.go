package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTeardownFollowsNoSymlinkAndEntersNoMount(t *testing.T) {
	f := onKernel(t)
	pod := podWith(emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	if err := os.WriteFile(kept, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	volume, _ := f.set.HostPath("uid-1", "e")
	if err := os.Symlink(outside, filepath.Join(volume, "link")); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(volume, "foreign")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(outside, foreign, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err == nil || !strings.Contains(err.Error(), "mount point") {
		t.Errorf("err = %v, want it to name the mount point", err)
	}
	if data, err := os.ReadFile(kept); err != nil || string(data) != "mine" {
		t.Fatalf("the file behind the mount: %q, %v", data, err)
	}
	if err := unix.Unmount(foreign, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(volume); !os.IsNotExist(err) {
		t.Errorf("the volume is still there: %v", err)
	}
	if _, err := os.ReadFile(kept); err != nil {
		t.Errorf("the file behind the symlink is gone: %v", err)
	}
}
