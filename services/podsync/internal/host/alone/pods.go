package alone

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/uds"
)

// machine tells agents from pods: a container that has the root directory mounted may
// hold the lock too, which needs no right to write, and serve a socket there. Nobody
// but the agent ends that container.
type machine struct {
	// podOf and podOfServer are uds.PodOf and uds.PodOfServer.
	podOf       func(pid int) (string, error)
	podOfServer func(conn net.Conn) (line string, gone bool, err error)
}

func thisMachine() machine { return machine{uds.PodOf, uds.PodOfServer} }

// heldByPods says whether the lock on a file is held and no agent can be who holds it:
// who has taken it is in a pod, or has ended and left the file to its children, which
// no agent does. false when that cannot be seen.
func (m machine) heldByPods(path string) (bool, error) {
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return false, err
	}
	// A lock of another PID namespace is not shown.
	pid, ok := holder(string(locks), &file)
	if !ok || pid == os.Getpid() {
		return false, nil
	}
	// The number may be another's by now.
	if agent, err := m.agentWith(pid, &file); agent || err != nil {
		return false, err
	}
	return !m.anyAgentWith(&file), nil
}

// anyAgentWith says whether another process that is in no pod has the file open, as an
// agent that goes on without the lock. Which have more capabilities is not seen.
func (m machine) anyAgentWith(file *unix.Stat_t) bool {
	procs, err := os.ReadDir("/proc")
	for _, proc := range procs {
		pid, notOne := strconv.Atoi(proc.Name())
		if notOne != nil || pid == os.Getpid() {
			continue
		}
		if agent, err := m.agentWith(pid, file); agent && err == nil {
			return true
		}
	}
	return err != nil
}

// agentWith says whether a process is in no pod and has the file open. What a process
// of a pod has open is not looked at: that may hang.
func (m machine) agentWith(pid int, file *unix.Stat_t) (bool, error) {
	pod, err := m.podOf(pid)
	if errors.Is(err, fs.ErrNotExist) || pod != "" {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return hasOpen(pid, file)
}

// holder returns the process that has taken a lock of flock on the file, from text, of
// /proc/locks.
func holder(text string, file *unix.Stat_t) (pid int, ok bool) {
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(file.Dev), unix.Minor(file.Dev), file.Ino)
	for line := range strings.Lines(text) {
		// Who only waits has "->" behind the number.
		if fields := strings.Fields(line); len(fields) >= 6 && fields[1] == "FLOCK" && fields[5] == want {
			pid, err := strconv.Atoi(fields[4])
			return pid, err == nil
		}
	}
	return 0, false
}

// hasOpen says whether a process has the file open; one that has ended has not.
func hasOpen(pid int, file *unix.Stat_t) (bool, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	fds, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("see what process %d has open: %w", pid, err)
	}
	for _, fd := range fds {
		path := filepath.Join(dir, fd.Name())
		name, err := os.Readlink(path)
		if errors.Is(err, fs.ErrPermission) {
			return false, fmt.Errorf("see what process %d has open: %w", pid, err)
		}
		// Only what may be it is asked, which may take long.
		if err != nil || !strings.HasPrefix(name, "/") || !strings.HasSuffix(strings.TrimSuffix(name, " (deleted)"), "/lock") {
			continue
		}
		var other unix.Stat_t
		if unix.Stat(path, &other) == nil && other.Dev == file.Dev && other.Ino == file.Ino {
			return true, nil
		}
	}
	return false, nil
}
