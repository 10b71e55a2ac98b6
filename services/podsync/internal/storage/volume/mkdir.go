package volume

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// mkdirExactly makes a directory in an open one with exactly a mode, whatever the umask. Who
// changes the mode afterwards may change that of what somebody has put in its place meanwhile.
func mkdirExactly(parent int, name string, mode uint32) error {
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // The thread has a umask of its own, and ends with this.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			made <- fmt.Errorf("have a umask for one thread: %w", err)
			return
		}
		unix.Umask(0)
		made <- unix.Mkdirat(parent, name, mode)
	}()
	return <-made
}
