package execreaper

import (
	"bytes"
	"errors"
	"fmt"
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
	if err != nil || now.Start != p.Start || now.Zombie || len(f.inside(p.PID, map[string]bool{id: true})) == 0 {
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
