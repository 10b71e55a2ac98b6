package uds

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// firstFD is where passed file descriptors begin, by systemd's protocol.
const firstFD = 3

// Activated returns the listening socket that was passed to this process under
// name (LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES, as sd_listen_fds(3) has them),
// or nil when there is none. Closing it does not remove the socket file, which
// belongs to whoever passed it.
func Activated(name string) (net.Listener, error) {
	fd, ok := passedFD(os.Getenv, os.Getpid(), name)
	if !ok {
		return nil, nil
	}
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("use passed socket %q (descriptor %d): %w: it must be a listening stream socket", name, fd, err)
	}
	return l, nil
}

func passedFD(getenv func(string) string, pid int, name string) (int, bool) {
	if forPID, err := strconv.Atoi(getenv("LISTEN_PID")); err != nil || forPID != pid {
		return 0, false
	}
	count, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || count <= 0 {
		return 0, false
	}
	for i, n := range strings.Split(getenv("LISTEN_FDNAMES"), ":") {
		if i < count && (n == name || n == name+".socket" || strings.TrimPrefix(n, "polylet-") == name+".socket") {
			return firstFD + i, true
		}
	}
	return 0, false
}
