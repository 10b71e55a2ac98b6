package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silent mounts a filesystem whose process answers nothing until the test ends.
func silent(t *testing.T, at string) {
	t.Helper()
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there is no FUSE: %v", err)
	}
	t.Cleanup(func() { _ = fuse.Close() })
	if err := unix.Mount("silent", at, "fuse.silent", 0, fmt.Sprintf("rootmode=40000,user_id=0,group_id=0,fd=%d", fuse.Fd())); err != nil {
		t.Skipf("mounts are not allowed here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

func TestAPathIsKnownThatComesToAServer(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"mnt/nfs", "mnt/nfsx", "mnt/local", "run/user", "run/x", "var", "etc", "x"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"data": root + "/mnt/nfs/a", "var/run": "../run", "loop": "loop", "out": root + "/mnt/nfs/../local", "up": "x/../mnt/nfs", "in": root + "/mnt/local",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	silent(t, root+"/mnt/nfs")
	silent(t, root+"/run/user")
	k := New(Config{})
	for path, want := range map[string]string{
		"/": "", "/mnt": "", "/mnt/nfs": "/mnt/nfs", "/mnt/nfs/a/b": "/mnt/nfs", "/mnt/nfsx": "", "/data": "/mnt/nfs", "/data/b": "/mnt/nfs",
		"/var/run/user/1": "/run/user", "/var/run/x": "", "/var/run/y": "", "/loop/a": "", "/out": "/mnt/nfs", "/up/b": "/mnt/nfs", "/etc/../mnt/nfs": "/mnt/nfs",
		"//mnt//nfs/": "/mnt/nfs", "/in/.": "",
	} {
		if want != "" {
			want = root + want
		}
		if at, err := k.AskedAt(root + path); at != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", path, at, err, want)
		}
	}
	found, at, err := k.Reach(root + "/var/run/x/")
	if err != nil || at != "" {
		t.Fatalf("%q, %v", at, err)
	}
	defer func() { _ = found.Close() }()
	have, err1 := found.Stat()
	want, err2 := os.Stat(root + "/run/x")
	if err := errors.Join(err1, err2); err != nil || !os.SameFile(have, want) {
		t.Errorf("another directory was found: %v", err)
	}
	for path, want := range map[string]error{"/run/y": unix.ENOENT, "/loop": unix.ELOOP} {
		if found, at, err := k.Reach(root + path); found != nil || at != "" || !errors.Is(err, want) {
			t.Errorf("%s: %q, %v", path, at, err)
		}
	}
}

func TestWhoLiesOnAServersRootAsksIt(t *testing.T) {
	w := way{done: "/", left: []string{"etc"}, asked: map[string]bool{"/": true}}
	if found, at, err := w.end(); found != nil || at != "/" || err != nil {
		t.Errorf("%q, %v", at, err)
	}
}

// What is a directory in one moment is a link to a server's in the next.
func TestNobodyIsAskedThoughThePathChangesWhileItIsGoneAlong(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"served", "a/b/c"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	silent(t, root+"/served")
	if err := os.Symlink("served", root+"/other"); err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	var exchanges sync.WaitGroup
	defer exchanges.Wait()
	defer over.Store(true)
	exchanges.Go(func() {
		for !over.Load() {
			_ = unix.Renameat2(unix.AT_FDCWD, root+"/a", unix.AT_FDCWD, root+"/other", unix.RENAME_EXCHANGE)
		}
	})
	done := make(chan map[string]int, 1)
	go func() {
		k, seen := New(Config{}), map[string]int{}
		for began := time.Now(); time.Since(began) < time.Second; {
			at, err := k.AskedAt(root + "/a/b/c")
			if err != nil {
				t.Error(err)
				break
			}
			seen[at]++
		}
		done <- seen
	}()
	select {
	case seen := <-done:
		delete(seen, "")
		delete(seen, root+"/served")
		if len(seen) != 0 {
			t.Errorf("somebody is asked at %v", seen)
		}
	case <-time.After(time.Minute):
		t.Error("the server is waited for")
	}
}

func TestASlashAtTheEndIsOfADirectory(t *testing.T) {
	root := t.TempDir()
	err := errors.Join(os.WriteFile(root+"/file", nil, 0o600), os.Mkdir(root+"/dir", 0o700), unix.Mknod(root+"/socket", unix.S_IFSOCK|0o600, 0),
		os.Symlink("file", root+"/link"), os.Symlink("file/", root+"/slashed"), os.Symlink("dir", root+"/to"))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		"file/": unix.ENOTDIR, "file//": unix.ENOTDIR, "socket/": unix.ENOTDIR, "link/": unix.ENOTDIR, "slashed": unix.ENOTDIR, "file/.": unix.ENOTDIR,
		"file": nil, "link": nil, "dir/": nil, "dir//": nil, "to/": nil, "./dir/./": nil,
	} {
		found, at, err := New(Config{}).Reach(root + "/" + path)
		if found != nil {
			_ = found.Close()
		}
		_, kernel := os.Stat(root + "/" + path)
		if at != "" || !errors.Is(err, want) || !errors.Is(kernel, want) || (found == nil) != (want != nil) {
			t.Errorf("%s: %q, %v, want %v; the kernel says %v", path, at, err, want, kernel)
		}
	}
}

func TestAPathOfTheNodeItselfAsksNobody(t *testing.T) {
	if at, err := New(Config{}).AskedAt("/proc/self/mountinfo"); at != "" || err != nil {
		t.Errorf("%q, %v", at, err)
	}
}

// What they read as is of the process's own root.
func TestALinkOfAProcessIsNotTakenByWhatItReadsAs(t *testing.T) {
	k := &Kernel{}
	own := fmt.Sprintf("/proc/%d/root", os.Getpid())
	for path, want := range map[string]string{own: own, own + "/etc": own, "/proc/self/cwd/x": fmt.Sprintf("/proc/%d/cwd", os.Getpid())} {
		if at, err := k.AskedAt(path); at != want || err != nil {
			t.Errorf("%s: %q, %v", path, at, err)
		}
	}
	if at, err := k.AskedAt("/proc/sys/kernel"); at != "" || err != nil {
		t.Errorf("what is no link is asked for at %q, %v", at, err)
	}
}

// A pod decides how long a subPath is, and makes as many directories in each other as it likes.
func TestAPathThatTheKernelWouldNotTakeIsNotGoneAlong(t *testing.T) {
	k := New(Config{})
	long := "/" + strings.Repeat("./", unix.PathMax/2)
	if found, at, err := k.Reach(long); !errors.Is(err, unix.ENAMETOOLONG) || found != nil || at != "" || len(err.Error()) > 200 {
		t.Errorf("%v, %q, %.300v", found, at, err)
	}
	if found, _, err := k.Reach(long[:unix.PathMax-1]); err != nil {
		t.Errorf("one that is as long as may be: %v", err)
	} else {
		_ = found.Close()
	}
	// A link leads on where the path alone may not.
	root := t.TempDir()
	here, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	for range 1500 {
		if err := unix.Mkdirat(int(here.Fd()), "dd", 0o700); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Openat(int(here.Fd()), "dd", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = here.Close()
		here = os.NewFile(uintptr(fd), "dd")
	}
	path := root + "/" + strings.Repeat("dd/", 1300)
	if err := os.Symlink(strings.Repeat("dd/", 600), path+"on"); err != nil {
		t.Fatal(err)
	}
	if found, at, err := k.Reach(path + "on"); !errors.Is(err, unix.ENAMETOOLONG) || found != nil || at != "" {
		t.Errorf("by a link: %v, %q, %.300v", found, at, err)
	}
}
