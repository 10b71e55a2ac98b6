package mount

import (
	"os"
	"path/filepath"
	"testing"
)

// sameCalls runs what volumes do against a Mounter.
func sameCalls(t *testing.T, m Mounter) {
	t.Helper()
	dir := t.TempDir()
	target, other, link := filepath.Join(dir, "target"), filepath.Join(dir, "other"), filepath.Join(dir, "link")
	for _, d := range []string{target, other} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	mounted := func(path string, want bool) {
		t.Helper()
		if got, err := m.Mounted(path); err != nil || got != want {
			t.Errorf("Mounted(%s) = %v, %v; want %v", filepath.Base(path), got, err, want)
		}
	}
	mounted(target, false)
	mounted(filepath.Join(dir, "absent"), false)
	if err := m.Tmpfs(filepath.Join(dir, "absent"), 0); err == nil {
		t.Error("something was mounted on nothing")
	}
	if err := m.Tmpfs(target, 1<<20); err != nil {
		t.Fatal(err)
	}
	mounted(target, true)
	mounted(link, false)
	if err := os.WriteFile(filepath.Join(target, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Bind(target, other); err != nil {
		t.Fatal(err)
	}
	mounted(other, true)
	if err := m.Unmount(link); err != nil {
		t.Errorf("unmounting a symlink: %v", err)
	}
	mounted(target, true)
	for _, d := range []string{other, target, target, filepath.Join(dir, "absent")} {
		if err := m.Unmount(d); err != nil {
			t.Errorf("Unmount(%s): %v", filepath.Base(d), err)
		}
	}
	mounted(target, false)
	mounted(other, false)
	if entries, err := os.ReadDir(target); err != nil || len(entries) != 0 {
		t.Errorf("after the tmpfs: %v, %v", entries, err)
	}
}

func TestTheKernelMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	sameCalls(t, New(Config{}))
}

// byTable is a kernel that does not say of a path whether something is mounted there.
type byTable struct{ *Kernel }

func (byTable) Mounted(target string) (bool, error) { return mountedByTable(target) }

func TestMountsOfAnOldKernelAreFoundInItsTable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	sameCalls(t, byTable{New(Config{})})
}

func TestTheFakeBehavesAsTheKernel(t *testing.T) { sameCalls(t, NewFake()) }

func TestABusyMountIsDetached(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	m := New(Config{})
	dir := t.TempDir()
	if err := m.Tmpfs(dir, 0); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := m.Unmount(dir); err != nil {
		t.Fatal(err)
	}
	if mounted, err := m.Mounted(dir); err != nil || mounted {
		t.Errorf("still mounted: %v, %v", mounted, err)
	}
}
