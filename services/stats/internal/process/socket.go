package process

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

// isSocket reports whether the link in a process's fd directory points to a socket.
func isSocket(dir *os.File, name string) bool {
	var target [16]byte
	n, err := unix.Readlinkat(int(dir.Fd()), name, target[:])
	return err == nil && bytes.HasPrefix(target[:n], []byte("socket:"))
}
