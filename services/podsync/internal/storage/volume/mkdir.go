package volume

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// coarse is by how much the kernel's time of a file may be behind the clock.
const coarse = 20 * time.Millisecond

// mkdirExactly makes a directory in an open one with exactly a mode, whatever the umask. One
// that is there already, or that somebody has put in the new one's place meanwhile, keeps its
// mode; it may not be a link.
func mkdirExactly(dir *os.File, name string, mode uint32) error {
	parent := int(dir.Fd())
	began := time.Now() // of the monotonic clock
	made := unix.Mkdirat(parent, name, mode)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return made
	}
	handle, err := openat2(unix.Openat2).handle(dir, name)
	if errors.Is(err, errMountPoint) {
		return nil // not the new one
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(handle) }()
	there, err := within(handle, name)
	if err != nil {
		return fmt.Errorf("%q is in the way: %w", name, err)
	}
	defer func() { _ = there.Close() }()
	fd := int(there.Fd())
	var st unix.Stat_t
	if made != nil || unix.Fstat(fd, &st) == nil && st.Mode&0o7777 == mode || !bornIn(parent, fd, time.Since(began)+coarse) {
		return nil
	}
	return unix.Fchmod(fd, mode)
}

// bornIn says whether an open directory is this process's and was made less than some time
// before its parent was changed last, as far as their filesystem says when that was. Both
// times are of one clock, which may be a server's; nobody can set either.
func bornIn(parent, fd int, within time.Duration) bool {
	var of, st unix.Statx_t
	if unix.Statx(parent, "", unix.AT_EMPTY_PATH, unix.STATX_CTIME, &of) != nil || unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME|unix.STATX_UID, &st) != nil || st.Uid != uint32(os.Geteuid()) { //nolint:gosec // A user's number.
		return false
	}
	return st.Mask&unix.STATX_BTIME == 0 || at(of.Ctime).Sub(at(st.Btime)) < within
}

func at(t unix.StatxTimestamp) time.Time { return time.Unix(t.Sec, int64(t.Nsec)) }
