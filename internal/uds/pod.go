package uds

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// soPeerPIDFD is SO_PEERPIDFD (Linux 6.5): a descriptor of the process that
// connected, which does not change its meaning when the number is used again.
const soPeerPIDFD = 77

// errPeerGone is a peer that ended before it could be looked at.
var errPeerGone = errors.New("the process that connected is gone")

// errPeerHidden is a peer that lives and of which /proc shows nothing.
var errPeerHidden = errors.New("/proc hides the process that connected, so nobody knows whether it runs in a pod: " +
	"mount /proc without hidepid, or with gid= of a group that this process is in")

// exiting is PF_EXITING of the kernel's flags of a process.
const exiting = 0x4

// PodOfServer returns the line of /proc/PID/cgroup that says that whoever listens at
// the other end of conn runs in a pod; "" when it runs in none, or is of another PID
// namespace. gone says that it has ended: its children may hold the socket.
func PodOfServer(conn net.Conn) (line string, gone bool, err error) {
	p, err := readPeer(conn)
	if err != nil {
		return "", false, err
	}
	line, err = podCgroup(conn, p.PID)
	if errors.Is(err, errPeerGone) {
		return "", true, nil
	}
	return line, false, err
}

// PeerOf is who is at the other end of a connection that is no RPC's. A peer that /proc
// hides is taken by its user alone.
func PeerOf(conn net.Conn) (Peer, error) {
	p, err := readPeer(conn)
	if err != nil {
		return Peer{}, err
	}
	if p.Pod, err = podCgroup(conn, p.PID); err != nil && !errors.Is(err, errPeerHidden) {
		return Peer{}, err
	}
	return p, nil
}

// PodOf returns the line of /proc/PID/cgroup that says that a process runs in a pod;
// "" when it runs in none. The error is fs.ErrNotExist when it has ended.
func PodOf(pid int) (string, error) {
	theirs, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if errors.Is(err, unix.ESRCH) {
		return "", fs.ErrNotExist
	}
	if err != nil {
		return "", fmt.Errorf("look at the cgroup of process %d: %w", pid, err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("look at this process's cgroup: %w", err)
	}
	return podLine(string(theirs), string(own)), nil
}

// podCgroup returns the line of /proc/PID/cgroup that says that the peer runs
// in a pod; "" when it runs in none, or is of another PID namespace: whether it
// is trusted then is said by its user alone. It fails with errPeerHidden when
// the mount options of /proc hide the peer, and with errPeerGone when it has
// ended: its number may be somebody else's by now, and one that nobody has waited
// for yet is shown at the root of the hierarchies of cgroup v1, while others may
// hold its connection.
func podCgroup(conn net.Conn, pid int32) (string, error) {
	if pid <= 0 {
		return "", nil
	}
	pidfd, err := openPeer(conn, pid)
	if err != nil {
		return "", err
	}
	if pidfd >= 0 {
		defer unix.Close(pidfd)
	}
	theirs, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	// Read behind it: who is not ending yet was not when the cgroup was read.
	stat, statErr := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// Only while it lives the number is surely its own.
	if pidfd >= 0 {
		if alive := unix.PidfdSendSignal(pidfd, 0, nil, 0); errors.Is(alive, unix.ESRCH) {
			return "", fmt.Errorf("look at the caller's cgroup: %w", errPeerGone)
		}
	}
	err = errors.Join(err, statErr)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "", fmt.Errorf("look at the caller's cgroup: %w (%w)", errPeerHidden, err)
	}
	if err != nil {
		return "", fmt.Errorf("look at the caller's cgroup: %w", err)
	}
	if ends(string(stat)) {
		return "", fmt.Errorf("look at the caller's cgroup: %w", errPeerGone)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("look at this process's cgroup: %w", err)
	}
	return podLine(string(theirs), string(own)), nil
}

// ends says whether a process has begun to end, from its /proc/PID/stat. What
// cannot be read counts as one that has.
func ends(stat string) bool {
	// The name may have anything in it, also parentheses and blanks.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 7 {
		return true
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64) // behind state, ppid, pgrp, session, tty and its group
	return err != nil || flags&exiting != 0
}

// openPeer returns a pidfd of the peer, -1 where the kernel has none: then its
// number has to do.
func openPeer(conn net.Conn, pid int32) (pidfd int, err error) {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return -1, nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("look at the caller: %w", err)
	}
	if err := raw.Control(func(fd uintptr) {
		pidfd, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, soPeerPIDFD)
	}); err != nil {
		return -1, fmt.Errorf("look at the caller: %w", err)
	}
	switch {
	case err == nil:
		return pidfd, nil
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		return -1, fmt.Errorf("look at the caller: %w", errPeerGone)
	}
	// Before Linux 6.5: from now on at least the number stays the same process's.
	switch pidfd, err = unix.PidfdOpen(int(pid), 0); {
	case err == nil:
		return pidfd, nil
	case errors.Is(err, unix.ESRCH):
		return -1, fmt.Errorf("look at the caller: %w", errPeerGone)
	default: // before Linux 5.3, or forbidden by a filter of system calls
		return -1, nil
	}
}

// podLine returns the first line of theirs, a /proc/PID/cgroup, that lies in a
// pod, "" when none does. What the path of own (this process's) has in common
// with it says nothing: a node may itself run in a pod of another node. With a
// cgroup namespace of one's own the paths of others begin with "/..", and go on
// as usual.
func podLine(theirs, own string) string {
	base := map[string]string{}
	for line := range strings.Lines(own) {
		hierarchy, path := splitLine(line)
		base[hierarchy] = path
	}
	for line := range strings.Lines(theirs) {
		hierarchy, path := splitLine(line)
		parts, common := strings.Split(path, "/"), strings.Split(base[hierarchy], "/")
		for len(parts) > 0 && len(common) > 0 && parts[0] == common[0] {
			parts, common = parts[1:], common[1:]
		}
		for _, part := range parts {
			if ofPods(part) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

// splitLine splits a line of /proc/PID/cgroup into hierarchy and path.
func splitLine(line string) (hierarchy, path string) {
	hierarchy, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
	_, path, _ = strings.Cut(rest, ":")
	return hierarchy, path
}

// ofPods knows the names of cgroups that hold pods only: what the node agent
// makes for them, with both cgroup drivers and below any cgroupRoot, and what
// runtimes take for containers when they are told nothing (cgroupsPerQOS false).
func ofPods(name string) bool {
	return name == "kubepods" || name == "kubepods.slice" || strings.HasSuffix(name, "-kubepods.slice") ||
		name == "k8s.io" || strings.HasPrefix(name, "cri-containerd-") || strings.HasPrefix(name, "crio-")
}
