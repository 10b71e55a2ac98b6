package projectquota

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/testkit/eventually"
)

// quotaVariable names a directory on a filesystem that counts by projects.
const quotaVariable = "POLYLET_TEST_PROJECT_QUOTA"

func TestTheStructuresAreAsLongAsTheKernels(t *testing.T) {
	if a, b := unsafe.Sizeof(fsxattr{}), unsafe.Sizeof(dqblk{}); a != 28 || b != 72 {
		t.Errorf("fsxattr has %d bytes, dqblk %d; want 28 and 72", a, b)
	}
}

func TestAKernelThatDoesNotCountIsNoError(t *testing.T) {
	for errno, want := range map[unix.Errno]bool{
		unix.ESRCH: true, unix.ENOTSUP: true, unix.EINVAL: true, unix.ENOSYS: true, unix.ENOTTY: true, unix.EPERM: false, unix.EIO: false,
	} {
		if err := missing(errno); errors.Is(err, ErrNone) != want || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}

// TestAFilesystemWithoutQuotasSaysSo asks the kernel itself.
func TestAFilesystemWithoutQuotasSaysSo(t *testing.T) {
	if id, err := New().Give(mkdir(t, "a")); err == nil || id != 0 {
		t.Skipf("this filesystem counts: it got %d", id)
	} else if os.Geteuid() == 0 && !errors.Is(err, ErrNone) {
		t.Errorf("of a directory: %v", err)
	}
}

// TestWhatIsMountedOnADirectoryIsNotReached: who serves it may not answer.
func TestWhatIsMountedOnADirectoryIsNotReached(t *testing.T) {
	if id, err := New().Give("/proc"); !errors.Is(err, unix.EXDEV) {
		t.Errorf("it got %d, %v", id, err)
	}
	if _, err := New().Usage("/proc", First); !errors.Is(err, unix.EXDEV) {
		t.Errorf("measured: %v", err)
	}
}

// TestARealFilesystemCountsADirectoryByItsProject is run by test/vm, whose kernel can.
func TestARealFilesystemCountsADirectoryByItsProject(t *testing.T) {
	on := os.Getenv(quotaVariable)
	if on == "" {
		t.Skip("no filesystem that counts by projects was named by " + quotaVariable)
	}
	dir, err := os.MkdirTemp(on, "emptydir-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	q := New()
	id, err := q.Give(dir)
	if err != nil || id < First {
		t.Fatalf("it got %d, %v", id, err)
	}
	empty := measured(t, q, dir, id)
	if empty.Inodes != 1 {
		t.Errorf("empty it has %+v", empty)
	}
	open := writeUnlinked(t, filepath.Join(dir, "below"), 8<<20)
	// While a file is open XFS keeps space behind its end for it, up to as much as it has.
	if got := measured(t, q, dir, id); got.Inodes != 3 || got.Bytes < empty.Bytes+8<<20 || got.Bytes > empty.Bytes+17<<20 {
		t.Errorf("with a file that is open and has no name it has %+v", got)
	}
	other, err := os.MkdirTemp(on, "emptydir-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(other)
	if second, err := New().Give(other); err != nil || second == id {
		t.Errorf("after a restart another got %d, %v", second, err)
	}
	if again, err := q.Give(other); err != nil {
		t.Errorf("it does not keep its own: %d, %v", again, err)
	}
	if err := errors.Join(open.Close(), os.Remove(filepath.Join(dir, "below"))); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "empty again it has more than itself", func() bool { // XFS gives an inode up some time later
		return measured(t, q, dir, id).Inodes == 1
	})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	handle, err := os.Open(on)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	eventually.Nil(t, func() error {
		left, err := (linux{}).quota(handle, id)
		if err == nil && left != (quota{}) {
			err = fmt.Errorf("of the directory that is gone %+v is left", left)
		}
		return err
	})
}

func measured(t *testing.T, q *Quotas, dir string, id uint32) Usage {
	t.Helper()
	got, err := q.Usage(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, project %d: %+v", dir, id, got)
	return got
}

// writeUnlinked makes a directory and leaves a file open in it that has no name any more.
func writeUnlinked(t *testing.T, dir string, size int) *os.File {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(make([]byte, size))
	if err := errors.Join(err, f.Sync(), os.Remove(f.Name())); err != nil {
		t.Fatal(err)
	}
	return f
}
