// Package eintr repeats system calls that a signal has interrupted, as package os does.
//
// It owns the calls of golang.org/x/sys/unix that podsync makes where a FUSE or network
// filesystem may lie: the Go runtime sends signals to its own threads (SIGURG), and a server
// that is told of them may answer EINTR. It must never repeat a call that closes something,
// never wait in between, and never go on with a server that answers nothing else.
package eintr

import (
	"errors"

	"golang.org/x/sys/unix"
)

// often is how often a call is made at most: the runtime's signals come every 10 ms, so
// that a call which they interrupt goes on for minutes.
const often = 10_000

// Do repeats a call for as long as it was interrupted. EINTR: it was each of many times.
func Do(call func() error) error {
	_, err := Get(func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// Get is Do of a call that answers something.
func Get[T any](call func() (got T, err error)) (got T, err error) {
	for range often {
		if got, err = call(); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return got, err
}

// Open is unix.Open.
func Open(path string, flags int, mode uint32) (int, error) {
	return Get(func() (int, error) { return unix.Open(path, flags, mode) })
}

// Openat is unix.Openat. With O_CREAT and O_EXCL, what an interrupted call has made is in the
// way of the next one.
func Openat(dir int, path string, flags int, mode uint32) (int, error) {
	return Get(func() (int, error) { return unix.Openat(dir, path, flags, mode) })
}

// Openat2 is unix.Openat2.
func Openat2(dir int, path string, how *unix.OpenHow) (int, error) {
	return Get(func() (int, error) { return unix.Openat2(dir, path, how) })
}

// Fstat is unix.Fstat.
func Fstat(fd int, st *unix.Stat_t) error {
	return Do(func() error { return unix.Fstat(fd, st) })
}

// Fstatat is unix.Fstatat.
func Fstatat(dir int, path string, st *unix.Stat_t, flags int) error {
	return Do(func() error { return unix.Fstatat(dir, path, st, flags) })
}

// Statfs is unix.Statfs.
func Statfs(path string, st *unix.Statfs_t) error {
	return Do(func() error { return unix.Statfs(path, st) })
}

// Fchownat is unix.Fchownat.
func Fchownat(dir int, path string, uid, gid, flags int) error {
	return Do(func() error { return unix.Fchownat(dir, path, uid, gid, flags) })
}

// Chmod is unix.Chmod.
func Chmod(path string, mode uint32) error {
	return Do(func() error { return unix.Chmod(path, mode) })
}

// Seek is unix.Seek.
func Seek(fd int, offset int64, whence int) (int64, error) {
	return Get(func() (int64, error) { return unix.Seek(fd, offset, whence) })
}

// ReadDirent is unix.ReadDirent.
func ReadDirent(fd int, into []byte) (int, error) {
	return Get(func() (int, error) { return unix.ReadDirent(fd, into) })
}

// Readlinkat is unix.Readlinkat.
func Readlinkat(dir int, path string, into []byte) (int, error) {
	return Get(func() (int, error) { return unix.Readlinkat(dir, path, into) })
}

// Mkdirat is unix.Mkdirat. What an interrupted call has made is in the way of the next one.
func Mkdirat(dir int, path string, mode uint32) error {
	return Do(func() error { return unix.Mkdirat(dir, path, mode) })
}
