package instance

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killWithin bounds the wait for killed processes to be gone.
const killWithin = time.Minute

// Processes returns the pids that belong to the instance: containerd's shims of
// its sockets, everything that descends from them, and everything whose root
// file system is one of the instance's mounts.
func (i *Instance) Processes() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	own, _ := os.Readlink("/proc/self/ns/mnt")
	parents := map[int]int{}
	belongs := map[int]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		parents[pid] = parentOf(pid)
		if i.isShim(pid) || i.ownsRoot(pid, own) {
			belongs[pid] = true
		}
	}
	for pid := range parents {
		for up := pid; up > 1; up = parents[up] {
			if belongs[up] {
				belongs[pid] = true
				break
			}
		}
	}
	delete(belongs, os.Getpid())
	pids := make([]int, 0, len(belongs))
	for pid := range belongs {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids, nil
}

// killProcesses kills until a look finds none, for a dying shim can still start
// a process.
func (i *Instance) killProcesses() error {
	deadline := time.Now().Add(killWithin)
	for {
		pids, err := i.Processes()
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v are still there %s after SIGKILL", pids, killWithin)
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// isShim recognises a shim by the socket of the containerd that started it.
func (i *Instance) isShim(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	args := strings.Split(string(data), "\x00")
	if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") {
		return false
	}
	return slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, i.Dir+"/") })
}

// ownsRoot tells whether the process stands in another mount namespace whose
// root is an overlay of the instance's snapshots.
func (i *Instance) ownsRoot(pid int, ownNamespace string) bool {
	ns, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns/mnt"))
	if err != nil || ns == ownNamespace {
		return false
	}
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "mountinfo"))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(data) {
		fields := strings.Fields(string(line))
		if len(fields) > 4 && fields[4] == "/" {
			return strings.Contains(string(line), "="+i.Dir+"/")
		}
	}
	return false
}

func parentOf(pid int) int {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}
