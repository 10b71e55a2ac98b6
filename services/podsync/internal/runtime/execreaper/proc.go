package execreaper

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is one of a container's.
type Process struct {
	PID, Parent int
	// SID is the process's session in the POSIX sense.
	SID int
	// Start is in ticks since the machine's start; with PID it names a process.
	Start uint64
	// Argv is the command of one that was started from outside (see roots), as
	// much of it as is read; nil of others.
	Argv []string
	// Zombie has ended already.
	Zombie bool
	// First is PID 1 of its own PID namespace.
	First bool
	// Level is how deep its PID namespace lies, 1 for the host's; ParentLevel is
	// that of its parent, 0 when that has gone.
	Level, ParentLevel int
}

// Procfs reads processes and signals them.
type Procfs struct {
	// Root is where procfs is mounted; "/proc" when empty.
	Root string
	// Member says whether a process is in the container's cgroup now; by
	// /proc/PID/cgroup when nil.
	Member func(pid int, container string) bool
}

func (f Procfs) path(parts ...string) string {
	root := f.Root
	if root == "" {
		root = "/proc"
	}
	return filepath.Join(append([]string{root}, parts...)...)
}

// mostArgv is how much is read of the commands of one container's processes, in
// bytes: more than anybody can ask for. A process says itself where its command
// lies (PR_SET_MM_MAP), and may say that all of its memory is. mostArgs is how many
// arguments are told apart: each takes more room than it has bytes.
const (
	mostArgv = 4 << 20
	mostArgs = 64 << 10
)

// Container returns the processes in the container's cgroup and below it, in
// whichever hierarchy. One that ends meanwhile is left out.
func (f Procfs) Container(id string) ([]Process, error) {
	dir, err := os.Open(f.path())
	if err != nil {
		return nil, fmt.Errorf("list the node's processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list the node's processes in %s: %w", dir.Name(), err)
	}
	var all []Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || !f.inside(pid, id) {
			continue
		}
		if p, ok := f.process(pid); ok {
			all = append(all, p)
		}
	}
	f.commands(all)
	return all, nil
}

// commands reads those of the processes that were started from outside. Of one
// that has ended meanwhile nothing is known.
func (f Procfs) commands(all []Process) {
	argv, left := map[int][]string{}, int64(mostArgv)
	for _, p := range roots(all, f.Level()) {
		raw := f.head(left, strconv.Itoa(p.PID), "cmdline")
		left -= int64(len(raw))
		if len(raw) > 0 {
			argv[p.PID] = strings.SplitN(strings.TrimSuffix(string(raw), "\x00"), "\x00", mostArgs)
		}
	}
	for i := range all {
		all[i].Argv = argv[all[i].PID]
	}
}

// head reads the first limit bytes of a file, fewer when it cannot.
func (f Procfs) head(limit int64, parts ...string) []byte {
	file, err := os.Open(f.path(parts...))
	if err != nil {
		return nil
	}
	defer file.Close()
	raw, _ := io.ReadAll(io.LimitReader(file, limit)) // what came before an error is as good
	return raw
}

// inside says whether the process is in the container's cgroup now.
func (f Procfs) inside(pid int, id string) bool {
	if f.Member != nil {
		return f.Member(pid, id)
	}
	text, err := os.ReadFile(f.path(strconv.Itoa(pid), "cgroup"))
	return err == nil && member(text, id) // one that cannot be read has ended
}

// member looks for the cgroup that a runtime has made for the container: its id,
// or "<prefix>-<id>.scope" where systemd makes it. CRI-O's monitor has one of
// its own, which is not the container's.
func member(text []byte, id string) bool {
	if id == "" || !bytes.Contains(text, []byte(id)) {
		return false
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for part := range strings.SplitSeq(fields[2], "/") {
			unit, ok := strings.CutSuffix(part, ".scope")
			if part == id || ok && strings.HasSuffix(unit, "-"+id) && !strings.HasPrefix(unit, "crio-conmon-") {
				return true
			}
		}
	}
	return false
}

// process reads one; ok is false when it has ended.
func (f Procfs) process(pid int) (p Process, ok bool) {
	p, err := f.stat(pid)
	if err != nil {
		return p, false
	}
	status, err := f.status(pid)
	if err != nil {
		return p, false
	}
	p.Level, p.First = level(status["NSpid"])
	if parent, err := f.status(p.Parent); err == nil {
		p.ParentLevel, _ = level(parent["NSpid"])
	}
	return p, true
}

// level reads NSpid: the process's number in each namespace, outermost first.
func level(numbers string) (depth int, first bool) {
	fields := strings.Fields(numbers)
	return len(fields), len(fields) > 0 && fields[len(fields)-1] == "1"
}

// stat reads what /proc/PID/stat tells. The program's name in it may hold
// anything, brackets too.
func (f Procfs) stat(pid int) (Process, error) {
	raw, err := os.ReadFile(f.path(strconv.Itoa(pid), "stat"))
	if err != nil {
		return Process{}, err
	}
	_, rest, ok := strings.Cut(string(raw[max(bytes.LastIndexByte(raw, ')'), 0):]), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return Process{}, fmt.Errorf("/proc/%d/stat is %q: not understood", pid, raw)
	}
	p := Process{PID: pid, Zombie: fields[0] == "Z" || fields[0] == "X"}
	var errs [3]error
	p.Parent, errs[0] = strconv.Atoi(fields[1])
	p.SID, errs[1] = strconv.Atoi(fields[3])
	p.Start, errs[2] = strconv.ParseUint(fields[19], 10, 64)
	return p, errors.Join(errs[:]...)
}

func (f Procfs) status(pid int) (map[string]string, error) {
	raw, err := os.ReadFile(f.path(strconv.Itoa(pid), "status"))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		switch key, value, _ := strings.Cut(line, ":"); key {
		case "NSpid", "SigIgn":
			out[key] = strings.TrimSpace(value)
		}
	}
	return out, nil
}

// Level is how deep the PID namespace of this process lies: 1 on the host.
func (f Procfs) Level() int {
	status, err := f.status(os.Getpid())
	if err != nil {
		return 0
	}
	depth, _ := level(status["NSpid"])
	return depth
}

// IgnoresHangup says whether the process ignores SIGHUP, as nohup makes it.
func (f Procfs) IgnoresHangup(pid int) bool {
	status, err := f.status(pid)
	if err != nil {
		return false
	}
	ignored, err := strconv.ParseUint(status["SigIgn"], 16, 64)
	return err == nil && ignored&(1<<(uint(unix.SIGHUP)-1)) != 0
}

// Signal sends a signal to the process that p was when it was read, if that is
// still there and still in the container; gone says that it is not.
func (f Procfs) Signal(id string, p Process, signal unix.Signal) (gone bool, err error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("open process %d of container %s: %w", p.PID, id, err)
	}
	defer unix.Close(fd)
	// The number may have been given to another: what it names now is looked at
	// once more, and cannot change any more for fd.
	now, err := f.stat(p.PID)
	if err != nil || now.Start != p.Start || now.Zombie || !f.inside(p.PID, id) {
		return true, nil //nolint:nilerr // a process that cannot be read has ended
	}
	switch err := unix.PidfdSendSignal(fd, signal, nil, 0); {
	case errors.Is(err, unix.ESRCH):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("send %s to process %d of container %s: %w; podsync needs CAP_KILL", unix.SignalName(signal), p.PID, id, err)
	}
	return false, nil
}

// now is the time since the machine's start in ticks, rounded as the kernel
// rounds when a process started.
func now() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("read CLOCK_BOOTTIME: %v", err)) // every Linux has it
	}
	return uint64(t.Nano()) / (1e9 / ticksPerSecond) //nolint:gosec // it is not negative
}
