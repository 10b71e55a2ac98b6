package volume

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/host/eintr"
)

// mkdirExactly makes a directory in an open one with exactly a mode from the start, whatever the
// umask: a mode that is given afterwards may be given to what somebody has put in the new one's
// place, a server that squashes root may not let it be given, and whoever is killed in between
// leaves it without. One that is there already keeps its own. The thread has a umask of its own
// from now on, which is as it was before, and goes on: one that ends takes the children with it
// that it has begun.
func mkdirExactly(dir *os.File, name string, mode uint32) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("have a umask for one thread: %w", err)
	}
	umask := unix.Umask(0)
	defer unix.Umask(umask)
	err := eintr.Mkdirat(int(dir.Fd()), name, mode)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}
