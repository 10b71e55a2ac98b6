package mount

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestARestrictedMountLeavesItsSourceAsItIs needs root: the kernel is asked.
func TestARestrictedMountLeavesItsSourceAsItIs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts")
	}
	k, source, target := New(Config{}), t.TempDir(), t.TempDir()
	if err := k.Bind(source, target); err != nil {
		t.Skipf("mounts are not allowed here: %v", err)
	}
	t.Cleanup(func() { _ = k.Unmount(target) })
	for name, restrict := range map[string]func() error{
		"attributes": func() error { return k.Restrict(target, []string{"ro", "noexec", "noatime"}) },
		"flags":      func() error { return restrictByFlags(target, unix.MS_RDONLY) },
	} {
		for range 2 {
			if err := restrict(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if err := os.WriteFile(filepath.Join(target, "f"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: a write through it: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(source, "f"), nil, 0o600); err != nil {
			t.Errorf("%s: a write beside it: %v", name, err)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(target, &st); err != nil || st.Flags&unix.ST_NOEXEC == 0 && name == "attributes" {
			t.Errorf("%s: %v, flags %x", name, err, st.Flags)
		}
	}
	if err := k.Restrict(filepath.Join(source), []string{"ro"}); err == nil {
		t.Error("what is no mount point was restricted")
	}
}

func TestAnOptionThatOneMountCannotHaveIsRefused(t *testing.T) {
	if err := CheckRestrictions([]string{"ro", "noexec", "rw", "bind"}); err != nil {
		t.Error(err)
	}
	if err := New(Config{}).Restrict("/nowhere", []string{"data=journal"}); err == nil {
		t.Error("data=journal was taken")
	}
}
