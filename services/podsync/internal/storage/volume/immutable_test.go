package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// chattr gives a file or directory attributes, as a pod with the right to do so does, and
// takes them away at the test's end: else nobody could remove the test's directory.
func chattr(t *testing.T, path string, flags uint32) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	had, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = setFlags(int(f.Fd()), had|flags)
	}
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) {
		t.Skipf("nothing becomes immutable here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if f, err := os.Open(path); err == nil {
			_ = setFlags(int(f.Fd()), had)
			_ = f.Close()
		}
	})
}

func attributes(t *testing.T, path string) uint32 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		t.Fatal(err)
	}
	return flags & forbidding
}

// made makes a directory with files and directories.
func made(t *testing.T, root string, dirs, files []string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(root, file), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatAPodHasMadeImmutableIsRemoved(t *testing.T) {
	for name, flag := range map[string]uint32{"immutable": immutable, "append-only": appendOnly, "both": immutable | appendOnly} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "v")
			made(t, root, []string{"empty", "full/below"}, []string{"file", "full/file", "full/below/file"})
			if err := os.Symlink("/etc", filepath.Join(root, "full/link")); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(filepath.Join(root, "full/pipe"), 0o600); err != nil {
				t.Fatal(err)
			}
			// Two names of one file: both go.
			if err := os.Link(filepath.Join(root, "file"), filepath.Join(root, "full/other")); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{"file", "full/below/file", "full/below", "full", "empty", ""} {
				chattr(t, filepath.Join(root, path), flag)
			}
			if err := removeTree(t.Context(), root); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(root); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("still there: %v", err)
			}
		})
	}
}

// TestThePodsDirectoryGoesThoughItsPodHasMadeFilesImmutable, in an emptyDir and of what the
// runtime mounts out of that directory. A kubelet fails at such a pod for ever.
func TestThePodsDirectoryGoesThoughItsPodHasMadeFilesImmutable(t *testing.T) {
	f := newFixture(t)
	pod := podWith(emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	volume, _ := f.set.HostPath("uid-1", "e")
	dir := filepath.Join(f.root, "pods", "uid-1")
	made(t, dir, nil, []string{"etc-hosts"})
	made(t, volume, nil, []string{"file"})
	for _, path := range []string{filepath.Join(dir, "etc-hosts"), filepath.Join(volume, "file"), volume} {
		chattr(t, path, immutable)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if err := f.set.RemovePodDir("uid-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestADeepTreeThatIsImmutableIsRemoved(t *testing.T) {
	root := filepath.Join(t.TempDir(), "v")
	deep := strings.Repeat("d/", mostOpen+3)
	made(t, root, []string{deep}, []string{deep + "file"})
	for path := filepath.Join(root, deep); ; path = filepath.Dir(path) {
		chattr(t, path, immutable)
		if path == root {
			break
		}
	}
	if err := removeTree(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

// TestOnlyWhatLiesInTheVolumeLosesItsAttributes: not where a link leads, what is mounted on
// a file, or a file that has another name elsewhere, nor the directory that the volume is in.
func TestOnlyWhatLiesInTheVolumeLosesItsAttributes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	for name, kernel := range kernels {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			root, outside := filepath.Join(dir, "v"), filepath.Join(dir, "outside")
			made(t, root, nil, nil)
			made(t, dir, []string{"outside", "v"}, []string{"outside/linked", "outside/mounted", "outside/named", "v/target"})
			if err := os.Symlink(filepath.Join(outside, "linked"), filepath.Join(root, "link")); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(filepath.Join(outside, "named"), filepath.Join(root, "named")); err != nil {
				t.Fatal(err)
			}
			chattr(t, filepath.Join(root, "target"), immutable)
			target := filepath.Join(root, "target")
			if err := unix.Mount(filepath.Join(outside, "mounted"), target, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
			for _, path := range []string{"linked", "mounted", "named", ""} {
				chattr(t, filepath.Join(outside, path), immutable)
			}
			chattr(t, root, immutable)
			remove := func() error {
				return (&tree{ctx: t.Context(), openat2: kernel, unlinkat: unix.Unlinkat, setFlags: setFlags, mostClosed: mostClosed}).removeAll(root)
			}
			if err := remove(); err == nil || !strings.Contains(err.Error(), target+" is a mount point") {
				t.Errorf("err = %v, want it to name %s", err, target)
			}
			if err := unix.Unmount(target, 0); err != nil {
				t.Fatal(err)
			}
			if err := remove(); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(root); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("still there: %v", err)
			}
			for _, path := range []string{"linked", "mounted", "named", ""} {
				if got := attributes(t, filepath.Join(outside, path)); got != immutable {
					t.Errorf("outside/%s has the attributes %#x", path, got)
				}
			}
		})
	}
}

// TestTheDirectoryThatAVolumeIsInKeepsItsAttributes, and so the volume stays: it is not the
// pod that has made it so.
func TestTheDirectoryThatAVolumeIsInKeepsItsAttributes(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "v")
	made(t, root, []string{"d"}, []string{"file"})
	chattr(t, dir, immutable)
	if err := removeTree(t.Context(), root); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), root) {
		t.Errorf("err = %v, want EPERM of %s", err, root)
	}
	if got := attributes(t, dir); got != immutable {
		t.Errorf("the directory above has the attributes %#x", got)
	}
}

// TestAnAttributeThatCannotBeTakenAwayIsNamed: a podsync without CAP_LINUX_IMMUTABLE says
// which file it is, and what to do.
func TestAnAttributeThatCannotBeTakenAwayIsNamed(t *testing.T) {
	root := filepath.Join(t.TempDir(), "v")
	made(t, root, []string{"d"}, []string{"d/file"})
	chattr(t, filepath.Join(root, "d/file"), immutable)
	refused := func(int, uint32) error { return unix.EPERM }
	err := (&tree{ctx: t.Context(), openat2: unix.Openat2, unlinkat: unix.Unlinkat, setFlags: refused, mostClosed: mostClosed}).removeAll(root)
	if !errors.Is(err, unix.EPERM) {
		t.Fatalf("err = %v", err)
	}
	for _, want := range []string{filepath.Join(root, "d/file"), "CAP_LINUX_IMMUTABLE", "chattr -ia"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want it to say %s", err, want)
		}
	}
	if got := attributes(t, filepath.Join(root, "d/file")); got != immutable {
		t.Errorf("the file has the attributes %#x", got)
	}
}
