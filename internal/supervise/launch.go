package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/lifeline"
)

// Identity is whom a child runs as. The zero value changes nothing.
type Identity struct {
	// Drop gives up root: the ids below, no capabilities but these, no_new_privs, and
	// no system call that reaches into another process.
	Drop bool
	// UID, GID and Groups are used when Drop is set.
	UID, GID int
	Groups   []int
	// Capabilities (unix.CAP_…, below 32) are kept when Drop is set.
	Capabilities []int
	// Environment are the names of variables that are passed on when Drop is set,
	// beside those that every program needs; root's others may be secret.
	Environment []string
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
	if os.Geteuid() != 0 || name == "root" || name == "0" {
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

// launchPlan is what the supervisor tells the launcher. Parent is the
// supervisor's process id; 0 when there is none whose end would be the child's
// (a container's command).
type launchPlan struct {
	Identity Identity
	Parent   int
	Sockets  []string
	// Lifeline is the value of the child's lifeline.Variable; empty for none.
	Lifeline string
	// Input is a file that becomes the child's standard input if it can be opened.
	Input string
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
	if plan.Input != "" {
		takeInput(plan.Input)
	}
	if plan.Identity.Drop {
		if err := drop(plan.Identity); err != nil {
			return fmt.Errorf("launch: give up privileges: %w", err)
		}
	}
	if err := bindTo(plan.Parent); err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	argv := append([]string{program}, args[2:]...)
	env := environment(os.Environ(), os.Getpid(), plan)
	err = syscall.Exec(program, argv, env)
	if errors.Is(err, syscall.EACCES) {
		// The program may lie where the new user cannot look.
		err = syscall.Exec("/proc/self/exe", argv, env)
	}
	return fmt.Errorf("launch: execute %s: %w", program, err)
}

// takeInput makes a file the standard input, with the rights of before they are given
// up. The program says what it lacks where that failed.
func takeInput(path string) {
	file, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return
	}
	_ = unix.Dup3(file, 0, 0) // Descriptor 0 is then as it was.
	_ = unix.Close(file)
}

// bindTo has the kernel end this process with its parent.
func bindTo(parent int) error {
	if parent == 0 {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("bind to the supervisor: %w", err)
	}
	if os.Getppid() != parent {
		return errors.New("the supervisor is gone")
	}
	return nil
}

func drop(id Identity) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	for capability := range 64 {
		if slices.Contains(id.Capabilities, capability) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // past the kernel's last one
		}
		if err != nil {
			return fmt.Errorf("bounding set: capability %d: %w", capability, err)
		}
	}
	// With the last root id gone the kernel clears the capabilities of threads
	// that do not ask to keep them; exec clears what is kept and not ambient.
	if len(id.Capabilities) > 0 {
		if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("keep capabilities: %w", err)
		}
	}
	if err := syscall.Setgroups(id.Groups); err != nil {
		return fmt.Errorf("groups %v: %w", id.Groups, err)
	}
	if err := syscall.Setresgid(id.GID, id.GID, id.GID); err != nil {
		return fmt.Errorf("group %d: %w", id.GID, err)
	}
	if err := syscall.Setresuid(id.UID, id.UID, id.UID); err != nil {
		return fmt.Errorf("user %d: %w", id.UID, err)
	}
	if err := keep(id.Capabilities); err != nil {
		return err
	}
	return refuse()
}

// keep makes these the capabilities of this thread and of what it executes.
func keep(capabilities []int) error {
	if len(capabilities) == 0 {
		return nil
	}
	var data [2]unix.CapUserData // the second is for capabilities from 32 on
	for _, capability := range capabilities {
		bit := uint32(1) << capability
		data[0].Effective |= bit
		data[0].Permitted |= bit
		data[0].Inheritable |= bit
	}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
		return fmt.Errorf("capabilities %v: %w", capabilities, err)
	}
	for _, capability := range capabilities {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(capability), 0, 0); err != nil {
			return fmt.Errorf("ambient capability %d: %w", capability, err)
		}
	}
	return nil
}

// everyProgram are the variables that a program without root gets: where things
// are, and how Go's runtime behaves.
func everyProgram() []string {
	return []string{
		"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR",
		"GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG", "GOTRACEBACK", "GOCOVERDIR",
	}
}

// environment is the child's: without what was meant for the supervisor, with
// the passed sockets; of a child without root, only what it needs.
func environment(base []string, pid int, plan launchPlan) []string {
	env := make([]string, 0, len(base)+3)
	allowed := append(everyProgram(), plan.Identity.Environment...)
	for _, entry := range base {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", lifeline.Variable:
			continue
		}
		if plan.Identity.Drop && !slices.Contains(allowed, name) {
			continue
		}
		env = append(env, entry)
	}
	if sockets := plan.Sockets; len(sockets) > 0 {
		env = append(env, "LISTEN_PID="+strconv.Itoa(pid), "LISTEN_FDS="+strconv.Itoa(len(sockets)),
			"LISTEN_FDNAMES="+strings.Join(sockets, ":"))
	}
	if plan.Lifeline != "" {
		env = append(env, lifeline.Variable+"="+plan.Lifeline)
	}
	return env
}
