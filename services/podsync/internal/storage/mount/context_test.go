package mount

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestALabelThatAFilesystemIsMountedWithIsFoundAmongItsOptions(t *testing.T) {
	for options, want := range map[string]string{
		"": "", "rw,seclabel": "", `rw,fscontext="u:r:t:s0:c1,c2"`: "",
		`rw,context="u:r:t:s0:c1,c2",errors=remount-ro`: "u:r:t:s0:c1,c2",
		`context=u:r:t:s0,relatime`:                     "u:r:t:s0",
		`rw,context=u:r:t:s0`:                           "u:r:t:s0",
	} {
		if got := contextIn(options); got != want {
			t.Errorf("%s: %q, want %q", options, got, want)
		}
	}
	if label, err := Context(t.TempDir()); label != "" || err != nil {
		t.Errorf("where nothing is mounted: %q, %v", label, err)
	}
}

// TestWhatIsMountedIsFoundBehindALinkOfItsPath: a node's root directory may be one.
func TestWhatIsMountedIsFoundBehindALinkOfItsPath(t *testing.T) {
	real, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	at := filepath.Join(link, "at")
	if err := errors.Join(os.Symlink(real, link), os.Mkdir(at, 0o755)); err != nil {
		t.Fatal(err)
	}
	k := New(Config{})
	if err := k.Tmpfs(at, 0); err != nil {
		t.Skipf("mounts are not allowed here: %v", err)
	}
	t.Cleanup(func() { _ = k.Unmount(at) })
	mounts, err := mountsOn(at)
	if err != nil || len(mounts) != 1 || mounts[0].FSType != "tmpfs" {
		t.Errorf("%v, %v", mounts, err)
	}
}
