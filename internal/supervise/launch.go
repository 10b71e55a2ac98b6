package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Identity is whom a child runs as. The zero value changes nothing.
type Identity struct {
	// Drop gives up root: the ids below, no capabilities, no_new_privs.
	Drop bool
	// UID, GID and Groups are used when Drop is set.
	UID, GID int
	Groups   []int
}

// String names the user for logs.
func (i Identity) String() string {
	if !i.Drop {
		return strconv.Itoa(os.Geteuid())
	}
	return strconv.Itoa(i.UID)
}

// LookupIdentity turns a user's name or number into an identity with extra
// groups. root, and any user when this process is not root, drop nothing. A
// number without an entry in the user database has the group of the same number.
func LookupIdentity(name string, extraGroups ...int) (Identity, error) {
	if os.Geteuid() != 0 {
		return Identity{}, nil
	}
	u, err := user.Lookup(name)
	if _, numeric := strconv.Atoi(name); err != nil && numeric == nil {
		u, err = user.LookupId(name)
		if err != nil {
			u, err = &user.User{Uid: name, Gid: name}, nil
		}
	}
	if err != nil {
		return Identity{}, fmt.Errorf("user %q: %w: create it (useradd --system %s) or pass a number", name, err, name)
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return Identity{}, fmt.Errorf("user %q: %w", name, err)
	}
	if uid == 0 {
		return Identity{}, nil
	}
	identity := Identity{Drop: true, UID: uid, GID: gid}
	for _, g := range extraGroups {
		if g >= 0 {
			identity.Groups = append(identity.Groups, g)
		}
	}
	return identity, nil
}

// launchPlan is what the supervisor tells the launcher.
type launchPlan struct {
	Identity Identity
	Parent   int
	Sockets  []string
}

// Launch is the first thing that a child does, still as the supervisor's user:
// it gives up what the plan says, binds its life to the supervisor's, names the
// passed sockets, and becomes the real program. args are the plan, "--", and
// the program's arguments. It only returns with an error.
//
// It stands apart from fork because no_new_privs and the bounding set cannot
// be given to os/exec, and LISTEN_PID must be the child's own.
func Launch(args []string) error {
	if len(args) < 2 || args[1] != "--" {
		return errors.New("launch: this command is polylet run's own")
	}
	var plan launchPlan
	if err := json.Unmarshal([]byte(args[0]), &plan); err != nil {
		return fmt.Errorf("launch: read plan: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("launch: find program: %w", err)
	}
	// What follows is per thread, and exec keeps this thread's.
	runtime.LockOSThread()
	if plan.Identity.Drop {
		if err := drop(plan.Identity); err != nil {
			return fmt.Errorf("launch: give up privileges: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("launch: bind to the supervisor: %w", err)
	}
	if os.Getppid() != plan.Parent {
		return errors.New("launch: the supervisor is gone")
	}
	argv := append([]string{program}, args[2:]...)
	env := environment(os.Environ(), os.Getpid(), plan.Sockets)
	err = syscall.Exec(program, argv, env)
	if errors.Is(err, syscall.EACCES) {
		// The program may lie where the new user cannot look.
		err = syscall.Exec("/proc/self/exe", argv, env)
	}
	return fmt.Errorf("launch: execute %s: %w", program, err)
}

func drop(id Identity) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	for capability := range uintptr(64) {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // past the kernel's last one
		}
		if err != nil {
			return fmt.Errorf("bounding set: capability %d: %w", capability, err)
		}
	}
	if err := syscall.Setgroups(id.Groups); err != nil {
		return fmt.Errorf("groups %v: %w", id.Groups, err)
	}
	if err := syscall.Setresgid(id.GID, id.GID, id.GID); err != nil {
		return fmt.Errorf("group %d: %w", id.GID, err)
	}
	// With the last root id gone the kernel clears all capabilities.
	if err := syscall.Setresuid(id.UID, id.UID, id.UID); err != nil {
		return fmt.Errorf("user %d: %w", id.UID, err)
	}
	return nil
}

// environment is the child's: without what was meant for the supervisor, with
// the passed sockets.
func environment(base []string, pid int, sockets []string) []string {
	env := make([]string, 0, len(base)+3)
	for _, entry := range base {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID":
		default:
			env = append(env, entry)
		}
	}
	if len(sockets) > 0 {
		env = append(env, "LISTEN_PID="+strconv.Itoa(pid), "LISTEN_FDS="+strconv.Itoa(len(sockets)),
			"LISTEN_FDNAMES="+strings.Join(sockets, ":"))
	}
	return env
}
