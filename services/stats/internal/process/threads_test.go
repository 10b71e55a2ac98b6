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
	holdsFile  = "POLYLET_TEST_HOLDS"
)

// A process that holds a removed file open with a thread of its own begins here, for this
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
