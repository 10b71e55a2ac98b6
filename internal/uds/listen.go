// Package uds owns the Unix sockets between the processes: where they come
// from, who may open them, and who is at the other end. It must never remove
// anything that is not a dead socket.
package uds

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// DefaultGroup is the group that may read from the sockets, when it exists.
const DefaultGroup = "polylet"

// Path is where a service's socket is below the sockets' directory: in a
// directory of its own, <service>.d, where there is one, else directly there.
// Containers have no common supervisor that opens the sockets for them: there
// each may write to its own directory, and to no other's.
func Path(dir, service string) string {
	if own := filepath.Join(dir, service+".d"); isDir(own) {
		return filepath.Join(own, service+".sock")
	}
	return filepath.Join(dir, service+".sock")
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

const (
	dirMode    = 0o750
	socketMode = 0o660
)

// Listen gives a listener on path. When systemd (or polylet run) passed a
// socket under the name of path's base without ".sock", that one is used.
// Otherwise the directory is made if it is missing (0750 root:group), a dead
// socket in the way is removed, and the socket gets mode 0660 and group. A
// group of "" leaves the owner as it is; else it is a name or a number.
// A socket that somebody serves is an error.
func Listen(path, group string) (net.Listener, error) {
	name := strings.TrimSuffix(filepath.Base(path), ".sock")
	l, err := Activated(name)
	if err != nil || l != nil {
		return l, err
	}
	gid, err := LookupGroup(group)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := makeDir(filepath.Dir(path), gid); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := removeDead(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err = net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := setOwner(path, os.ModeSocket, socketMode, gid); err != nil {
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // who knows what is there now
		}
		_ = l.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// LookupGroup turns a group's name or number into its number; -1 for "".
func LookupGroup(group string) (int, error) {
	if group == "" {
		return -1, nil
	}
	if gid, err := strconv.Atoi(group); err == nil && gid >= 0 {
		return gid, nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return -1, fmt.Errorf("group %q: %w: create it (groupadd --system %s) or name another one", group, err, group)
	}
	return strconv.Atoi(g.Gid)
}

func makeDir(dir string, gid int) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(dir, dirMode)
	if errors.Is(err, fs.ErrExist) {
		return checkDir(dir)
	}
	if err != nil {
		return err
	}
	return setOwner(dir, os.ModeDir, dirMode, gid)
}

// checkDir leaves a directory that is there as it is, and fails when another
// user could put a socket of his own into it.
func checkDir(dir string) error { return OwnDir(dir, os.Getegid()) }

// OwnDir fails unless dir is a directory (not a link to one) of root or of this
// process's user, into which nobody else writes but, if at all, members of group.
// What lies in it can otherwise be taken away and replaced, sticky or not.
func OwnDir(dir string, group int) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory (a link is none): name the directory itself", dir)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("see whose %s is: %T has no owner", dir, info.Sys())
	}
	switch mode := info.Mode().Perm(); {
	case owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("directory %s belongs to uid %d, who could replace what is in it: chown %d %s, or choose another", dir, owner.Uid, os.Geteuid(), dir)
	case mode&0o002 != 0:
		return fmt.Errorf("directory %s may be written to by everybody: chmod o-w %s, or choose a directory of polylet's own", dir, dir)
	case mode&0o020 != 0 && int(owner.Gid) != group:
		return fmt.Errorf("directory %s may be written to by group %d: chmod g-w %s", dir, owner.Gid, dir)
	}
	return nil
}
