package ownership

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

const group = int64(4242)

func stat(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t)
}

// tree is a directory with a file, a directory and links out of it.
func tree(t *testing.T) (root, outside string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root, outside = filepath.Join(t.TempDir(), "root"), t.TempDir()
	err := errors.Join(
		os.MkdirAll(filepath.Join(root, "d", "e"), 0o700),
		os.WriteFile(filepath.Join(root, "d", "file"), nil, 0o600),
		os.WriteFile(filepath.Join(outside, "secret"), nil, 0o600),
		os.Symlink(outside, filepath.Join(root, "d", "dirlink")),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(root, "d", "link")),
	)
	if err != nil {
		t.Fatal(err)
	}
	return root, outside
}

func give(g int64) *int64 { return &g }

func TestATreeIsGivenToTheGroupAndNoLinkIsFollowed(t *testing.T) {
	root, outside := tree(t)
	if err := (Change{Group: give(group)}).Apply(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]uint32{"": 0o2770, "d": 0o2770, "d/e": 0o2770, "d/file": 0o660} {
		if st := stat(t, filepath.Join(root, path)); int64(st.Gid) != group || st.Mode&0o7777 != mode {
			t.Errorf("%q: group %d, mode %o", path, st.Gid, st.Mode)
		}
	}
	if st := stat(t, filepath.Join(root, "d", "link")); int64(st.Gid) != group {
		t.Error("the link itself is not given away")
	}
	for _, path := range []string{outside, filepath.Join(outside, "secret")} {
		if st := stat(t, path); st.Gid != 0 || st.Mode&0o7077 != 0 && path != outside {
			t.Errorf("%s was changed: group %d, mode %o", path, st.Gid, st.Mode)
		}
	}
}

func TestAReadOnlyTreeIsReadByTheGroup(t *testing.T) {
	root, _ := tree(t)
	if err := (Change{Group: give(group), ReadOnly: true}).Apply(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	if st := stat(t, filepath.Join(root, "d", "file")); st.Mode&0o7777 != 0o640 {
		t.Errorf("mode %o", st.Mode)
	}
}

func TestATreeWhoseRootIsGivenAwayIsLeftAloneWhereThatIsWanted(t *testing.T) {
	root, _ := tree(t)
	change := Change{Group: give(group), OnMismatch: true}
	if err := change.Apply(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "d", "file")
	if err := os.Lchown(file, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := change.Apply(t.Context(), root); err != nil || stat(t, file).Gid != 0 {
		t.Errorf("looked at though the root is given away: %v", err)
	}
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := change.Apply(t.Context(), root); err != nil || int64(stat(t, file).Gid) != group {
		t.Errorf("not given away though the root is not: %v", err)
	}
}

func TestItEndsWithItsContext(t *testing.T) {
	root, _ := tree(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Change{Group: give(group), Skip: func(error) {}}).Apply(ctx, root); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
