package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

func TestTeardownFollowsNoSymlinkAndEntersNoMount(t *testing.T) {
	f := onKernel(t)
	pod := podWith(emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	volume, _ := f.set.HostPath("uid-1", "e")
	foreign, harm := leadingOut(t, volume)
	if err := f.set.Teardown(t.Context(), "uid-1"); err == nil || !strings.Contains(err.Error(), "mount point") {
		t.Errorf("err = %v, want it to name the mount point", err)
	}
	if err := harm(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(foreign, 0); err != nil {
		t.Fatal(err)
	}
	f.set.MayWork([]types.UID{"uid-1"})
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(volume); !os.IsNotExist(err) {
		t.Errorf("the volume is still there: %v", err)
	}
	if err := harm(); err != nil {
		t.Error(err)
	}
}

// leadingOut plants a link in a directory and mounts something there (CVE-2017-1002102);
// harm says what has become of what is outside.
func leadingOut(t *testing.T, dir string) (foreign string, harm func() error) {
	t.Helper()
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	made(t, outside, nil, []string{"kept"})
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	foreign = filepath.Join(dir, "foreign")
	made(t, foreign, []string{""}, nil)
	if err := unix.Mount(outside, foreign, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(foreign, unix.MNT_DETACH) })
	return foreign, func() error {
		if data, err := os.ReadFile(kept); err != nil || string(data) != "mine" {
			return fmt.Errorf("the file outside is %q, %w", data, err)
		}
		return nil
	}
}

// TestARemovalThatEntersMountsIsCaught: os.RemoveAll is one, and so is what goes where the
// links of a directory lead.
func TestARemovalThatEntersMountsIsCaught(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	for name, remove := range map[string]func(dir string) error{
		"mounts": os.RemoveAll,
		"links":  func(dir string) error { return os.RemoveAll(filepath.Join(dir, "link") + "/kept") },
	} {
		dir := t.TempDir()
		_, harm := leadingOut(t, dir)
		_ = remove(dir) // that what is mounted stays is no comfort
		if harm() == nil {
			t.Errorf("%s: nothing was seen", name)
		}
	}
}
