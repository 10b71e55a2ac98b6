// Package notice hears from the kernel that memory may be short, so that it is measured
// at once and not only when it is due: tasks that stall for memory (pressure stall
// information), a cgroup that has come to its limits (memory.events of cgroup v2), and
// usage that has crossed a level (the threshold events of cgroup v1).
//
// It owns what it has the kernel tell. It must never measure, nor judge: who hears it
// looks for itself. What the kernel does not offer, or not to this process, is done
// without.
// Source: https://docs.kernel.org/accounting/psi.html,
// https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
package notice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/wake"
)

// stalls is what a trigger of pressure is asked for: 100 ms lost in two seconds, the
// window that is given without a capability.
const stalls = "some 100000 2000000"

// Notices are those of one watcher. Safe for concurrent use.
type Notices struct {
	heard wake.Signal
	epoll int
	stop  int // an eventfd
	ended sync.WaitGroup

	mu sync.Mutex
	// kept are open for as long as these are: triggers and what watches files.
	kept []int
	// levels is the eventfd of the armed levels, armed what they are; -1: none is.
	levels int
	armed  []Level
	// drained is what take reads, and nobody looks at.
	drained [4096]byte
}

// Open returns Notices that follow nothing yet; Close ends them.
func Open() (*Notices, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("follow the kernel's notices: %w", err)
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epoll) // It is of no use.
		return nil, fmt.Errorf("follow the kernel's notices: %w", err)
	}
	n := &Notices{heard: wake.New(), epoll: epoll, stop: stop, levels: -1}
	if err := n.add(stop, unix.EPOLLIN); err != nil {
		return nil, errors.Join(err, unix.Close(epoll), unix.Close(stop))
	}
	n.ended.Go(n.run)
	return n, nil
}

// Heard receives after something was; several may be one.
func (n *Notices) Heard() <-chan struct{} { return n.heard }

// Close ends them.
func (n *Notices) Close() {
	_, _ = unix.Write(n.stop, binary.NativeEndian.AppendUint64(nil, 1)) // Its counter is not full.
	n.ended.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.disarmLocked()
	for _, fd := range append(n.kept, n.stop, n.epoll) {
		_ = unix.Close(fd) // It is closed in any case.
	}
	n.kept = nil
}

func (n *Notices) run() {
	events := make([]unix.EpollEvent, 8)
	for {
		count, err := unix.EpollWait(n.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // It is closed.
		}
		for _, e := range events[:count] {
			if int(e.Fd) == n.stop {
				return
			}
			n.take(int(e.Fd), e.Events)
		}
		n.heard.Set()
	}
}

// take has an event be told once. The descriptor may have been closed since, by Arm, and
// its number be another's, whose bytes are not to be read.
func (n *Notices) take(fd int, events uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if fd != n.levels && !slices.Contains(n.kept, fd) {
		return
	}
	if events&unix.EPOLLIN != 0 {
		_, _ = unix.Read(fd, n.drained[:]) // It says only that something was.
	}
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		_ = unix.EpollCtl(n.epoll, unix.EPOLL_CTL_DEL, fd, nil) // Nothing more comes.
	}
}

func (n *Notices) add(fd int, events uint32) error {
	err := unix.EpollCtl(n.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}) //nolint:gosec // A descriptor.
	if err != nil {
		return fmt.Errorf("follow the kernel's notices: %w", err)
	}
	return nil
}

// keep follows a descriptor until Close, and closes it if that is not possible.
func (n *Notices) keep(fd int, events uint32) error {
	if err := n.add(fd, events); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(n.kept, fd)
	return nil
}

// Stalls has it told when tasks stall for memory, by a file of pressure stall
// information such as /proc/pressure/memory.
func (n *Notices) Stalls(file string) error {
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	if _, err := unix.Write(fd, append([]byte(stalls), 0)); err != nil {
		return errors.Join(fmt.Errorf("set a trigger in %s: %w", file, err), unix.Close(fd))
	}
	return n.keep(fd, unix.EPOLLPRI)
}

// Changes has it told when a file of the kernel's changes, such as a cgroup's
// memory.events.
func (n *Notices) Changes(file string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch %s: %w", file, err)
	}
	if _, err := unix.InotifyAddWatch(fd, file, unix.IN_MODIFY); err != nil {
		return errors.Join(fmt.Errorf("watch %s: %w", file, err), unix.Close(fd))
	}
	return n.keep(fd, unix.EPOLLIN)
}

// Level is a usage of a cgroup of v1 that is told of when it is crossed.
type Level struct {
	// Dir is the cgroup's directory; Bytes its memory.usage_in_bytes.
	Dir   string
	Bytes uint64
}

// resolution is the part of a level by which it has to differ to be armed anew.
const resolution = 200

// Arm has it told when one of the levels is crossed, in place of those before.
func (n *Notices) Arm(levels []Level) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.levels >= 0 && !n.movedLocked(levels) {
		return nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("follow a cgroup's usage: %w", err)
	}
	for _, l := range levels {
		if err := register(fd, l); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
	}
	if err := n.add(fd, unix.EPOLLIN); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	n.disarmLocked()
	n.levels = fd
	n.armed = slices.Clone(levels)
	return nil
}

// movedLocked says whether levels are others than those that are armed. Several may be of one
// cgroup; they always come in the same order.
func (n *Notices) movedLocked(levels []Level) bool {
	if len(levels) != len(n.armed) {
		return true
	}
	for i, l := range levels {
		was := n.armed[i]
		if was.Dir != l.Dir || max(was.Bytes, l.Bytes)-min(was.Bytes, l.Bytes) > l.Bytes/resolution {
			return true
		}
	}
	return false
}

// disarmLocked has nothing of levels told.
func (n *Notices) disarmLocked() {
	if n.levels >= 0 {
		_ = unix.Close(n.levels) // The kernel forgets what was to be told with it.
		n.levels = -1
		n.armed = nil
	}
}

func register(fd int, l Level) error {
	usage, err := os.Open(filepath.Join(l.Dir, "memory.usage_in_bytes"))
	if err != nil {
		return fmt.Errorf("follow a cgroup's usage: %w", err)
	}
	defer usage.Close() //nolint:errcheck // It was only read.
	control := filepath.Join(l.Dir, "cgroup.event_control")
	f, err := os.OpenFile(control, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("follow a cgroup's usage: %w", err)
	}
	_, err = fmt.Fprintf(f, "%d %d %d", fd, usage.Fd(), l.Bytes)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("follow a cgroup's usage in %s: %w", control, err)
	}
	return nil
}
