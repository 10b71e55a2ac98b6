package process

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/testkit/eventually"
)

const (
	ownFiles   = "a thread with open files of its own"
	firstEnded = "the first thread has ended"
	manyTables = "many threads with open files of their own"
	holdsFile  = "POLYLET_TEST_HOLDS"
)

// ownTables is how many threads have open files of their own where there are many.
const ownTables = 100

// A process that holds a removed file open with a thread of its own, or in the tables of
// many, begins here, for this
// runs on its first thread.
func init() {
	if how, path := os.Getenv(holdsFile), os.Getenv(holdsFile+"_FILE"); how != "" {
		hold(how, path)
	}
}

func hold(how, path string) {
	held := make(chan error)
	go func() {
		runtime.LockOSThread()
		held <- holdRemoved(how, path)
		select {}
	}()
	if err := <-held; err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	if how == manyTables {
		if err := multiply(path + ".cwd"); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
	}
	_, _ = os.Stdout.WriteString("it is held\n")
	if how == firstEnded {
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // Until the test ends.
	os.Exit(0)
}

func holdRemoved(how, path string) error {
	if how == ownFiles {
		if err := unix.Unshare(unix.CLONE_FILES); err != nil {
			return err
		}
	}
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, make([]byte, 1<<20))
	return errors.Join(err, unix.Fsync(fd), unix.Unlink(path))
}

// multiply gives many threads a copy each of all open files, and has the process in a
// directory that was removed: whoever opens a thread's directory finds that, and whoever reads
// its table the file.
func multiply(cwd string) error {
	if err := errors.Join(os.Mkdir(cwd, 0o700), os.Chdir(cwd), os.Remove(cwd)); err != nil {
		return err
	}
	made := make(chan error)
	for range ownTables {
		go func() {
			runtime.LockOSThread()
			made <- unix.Unshare(unix.CLONE_FILES)
			select {}
		}()
		if err := <-made; err != nil {
			return err
		}
	}
	return nil
}

// holder starts one, and waits until the file is held and, where it is to, its first thread
// has ended.
func holder(t *testing.T, how, path string) (pid int) {
	t.Helper()
	c := exec.Command("/proc/self/exe", "-test.run=^$")
	c.Env = append(os.Environ(), holdsFile+"="+how, holdsFile+"_FILE="+path)
	c.Stderr = os.Stderr
	in, inErr := c.StdinPipe()
	out, outErr := c.StdoutPipe()
	if err := errors.Join(inErr, outErr, c.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if how == firstEnded {
		eventually.True(t, "its first thread ends", func() bool {
			_, err := DeviceOf(filepath.Join("/proc", strconv.Itoa(c.Process.Pid), "root"))
			return err != nil
		})
	}
	return c.Process.Pid
}

// Neither needs a privilege, and the kernel shows the first thread's files for the process's.
func TestAFileThatWasRemovedIsFoundWhicheverThreadHoldsIt(t *testing.T) {
	for _, how := range []string{"the process", ownFiles, firstEnded} {
		t.Run(how, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			pid := holder(t, how, path)
			times, bytes := 0, uint64(0)
			all := Proc("/proc").Unlinked(t.Context(), pid, func(u Unlinked) {
				if u.Path == path {
					times, bytes = times+1, u.Bytes
				}
			})
			if !all || times != 1 || bytes < 1<<20 { // Once: those of all other threads are the same.
				t.Errorf("%v, %d bytes, found %d times", all, bytes, times)
			}
			mounts := 0
			Proc("/proc").Mounted(pid, func(uint64, string) bool { mounts++; return true })
			if mounts == 0 {
				t.Error("its mounts are not known")
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if Proc("/proc").Unlinked(ctx, pid, func(Unlinked) {}) {
				t.Error("without time for it all was looked at")
			}
		})
	}
}

// As where another machine's or namespace's processes are looked at.
func TestThreadsWhoseFilesCannotBeComparedAreAllLookedAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	pid := holder(t, ownFiles, path)
	elsewhere := t.TempDir()
	if err := os.Symlink(filepath.Join("/proc", strconv.Itoa(pid)), filepath.Join(elsewhere, strconv.Itoa(pid))); err != nil {
		t.Fatal(err)
	}
	times := 0
	all := Proc(elsewhere).Unlinked(t.Context(), pid, func(u Unlinked) {
		if u.Path == path {
			times++
		}
	})
	if !all || times != 1 {
		t.Errorf("%v, found %d times", all, times)
	}
}

// asked is a context that is done when it was asked for the nth time whether it is: time
// passes with what is done, not by a clock.
type asked struct {
	context.Context
	left int
}

func (a *asked) Err() error {
	if a.left--; a.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// foundIn counts how often a file is found in a process of many tables.
func foundIn(ctx context.Context, pid int, path string) (times int, all bool) {
	all = Proc("/proc").Unlinked(ctx, pid, func(u Unlinked) {
		if u.Path == path {
			times++
		}
	})
	return times, all
}

// Else whoever has many of them would hide what its first thread holds, for all the time went
// into telling them apart.
func TestEachTableIsReadAsSoonAsItIsFoundTheFirstThreadsFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	pid := holder(t, manyTables, path)
	if times, all := foundIn(t.Context(), pid, path); !all || times <= ownTables {
		t.Fatalf("%v, in %d tables", all, times)
	}
	for what, c := range map[string]struct{ questions, least int }{
		"the first thread's table":          {ownTables / 10, 1},
		"what there was time for of others": {ownTables / 2, 2},
	} {
		if times, all := foundIn(&asked{t.Context(), c.questions}, pid, path); all || times < c.least {
			t.Errorf("%s: %v, in %d tables", what, all, times)
		}
	}
}

func TestNoFurtherThreadIsOpenedWhenTheTimeIsOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	pid := holder(t, manyTables, path)
	for _, most := range []int{1, ownTables / 2} { // The first thread's, and one among the others'.
		ctx, cancel := context.WithCancel(t.Context())
		opened := 0
		all := Proc("/proc").Unlinked(ctx, pid, func(u Unlinked) {
			if u.Path != path+".cwd" {
				return
			}
			if opened++; opened == most {
				cancel()
			}
		})
		cancel()
		if all || opened != most {
			t.Errorf("%v, %d directories were opened, and the time was over at %d", all, opened, most)
		}
	}
}
