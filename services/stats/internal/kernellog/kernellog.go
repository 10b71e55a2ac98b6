// Package kernellog reads the kernel's log for the processes that the kernel has
// killed for lack of memory.
//
// It owns the newest of those kills, a bounded number of each kind. It must never write to the log,
// and never judge what a kill means.
package kernellog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

const (
	// Path is where the kernel's log is read.
	Path = "/dev/kmsg"
	// kept is how many kills are remembered of those for which the machine had no memory,
	// and how many of those for which a cgroup had none: a container that is killed again
	// and again hides nothing of the machine.
	kept = 64
	// longestRecord is what the kernel never exceeds.
	longestRecord = 8192
)

// device is what Path is.
var device = unix.Mkdev(1, 11)

// Open opens the kernel's log: the standard input if that is it, for whoever starts
// this process can give the right to read it that way and no other, else Path.
func Open() (io.ReadCloser, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(0, &stat); err == nil && stat.Mode&unix.S_IFMT == unix.S_IFCHR && stat.Rdev == device {
		if err := unix.SetNonblock(0, true); err != nil {
			return nil, fmt.Errorf("read the kernel's log on the standard input: %w", err)
		}
		return newTail(os.NewFile(0, Path))
	}
	file, err := os.OpenFile(Path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open the kernel's log: %w: give it to stats as its standard input (StandardInput=file:%s), or CAP_SYSLOG", err, Path)
	}
	return newTail(file)
}

// tail reads a log whose end it notices.
type tail struct {
	*os.File
	raw     syscall.RawConn
	drained atomic.Bool
}

func newTail(file *os.File) (*tail, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the kernel's log: %w", err), file.Close())
	}
	return &tail{File: file, raw: raw}, nil
}

// Read waits for a record, as the file's does.
func (t *tail) Read(p []byte) (n int, err error) {
	waits := t.raw.Read(func(fd uintptr) bool {
		for n, err = unix.Read(int(fd), p); errors.Is(err, unix.EINTR); {
			n, err = unix.Read(int(fd), p)
		}
		if errors.Is(err, unix.EAGAIN) {
			t.drained.Store(true)
			return false
		}
		return true
	})
	switch {
	case waits != nil:
		return 0, waits
	case n == 0 && err == nil:
		return 0, io.EOF
	}
	return max(n, 0), err
}

// live says whether all that there was at first has been read.
func (t *tail) live() bool { return t.drained.Load() }

// Config is what a Log needs.
type Config struct {
	// Open opens the log, whose Read gives one record at a time.
	Open func() (io.ReadCloser, error)
	// Boot is when the kernel's clock was zero.
	Boot func() time.Time
	// Problem is told why the log is not read; nil is told nothing.
	Problem func(message string)
}

// Log follows the kernel's log. Safe for concurrent use; Run runs once.
type Log struct {
	cfg Config

	mu    sync.Mutex
	kills []Kill // oldest first
	// changed is closed and made anew with each kill.
	changed chan struct{}
}

// New returns a Log; it reads nothing yet.
func New(cfg Config) *Log { return &Log{cfg: cfg, changed: make(chan struct{})} }

// After returns the kills whose sequence is after one, oldest first, and a channel
// that is closed when there are more.
func (l *Log) After(sequence uint64) ([]Kill, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := slices.IndexFunc(l.kills, func(k Kill) bool { return k.Sequence > sequence })
	if from < 0 {
		return nil, l.changed
	}
	return slices.Clone(l.kills[from:]), l.changed
}

// Run reads the log from its beginning until ctx is done; then it returns nil. What
// cannot be read is told to Health, and nobody hears of kills then.
func (l *Log) Run(ctx context.Context) error {
	file, err := l.cfg.Open()
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = file.Close() })
		defer stop()
		err = l.follow(ctx, file)
		_ = file.Close() // It was only read.
	}
	if ctx.Err() == nil {
		klog.FromContext(ctx).Info("The kernel's log is not read: nobody hears of processes that it kills for lack of memory", "path", Path, "err", err)
		if l.cfg.Problem != nil {
			l.cfg.Problem(fmt.Sprintf("%v; there are no events SystemOOM until stats is started anew with it", err))
		}
	}
	<-ctx.Done()
	return nil
}

func (l *Log) follow(ctx context.Context, file io.Reader) error {
	reader := newKillReader()
	buffer := make([]byte, longestRecord)
	for {
		n, err := file.Read(buffer)
		switch {
		case errors.Is(err, syscall.EPIPE):
			continue // Records were overwritten before they were read.
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read the kernel's log: %w", err)
		}
		record, ok := ParseRecord(buffer[:n])
		if !ok {
			continue
		}
		if kill, ok := reader.read(record, l.cfg.Boot()); ok {
			// Nobody steers the clock that records are written by, as NTP does the others: what
			// has just happened could seem old after months.
			if t, knows := file.(interface{ live() bool }); knows && t.live() {
				kill.Time = time.Now()
			}
			l.keep(kill)
		}
	}
}

func (l *Log) keep(kill Kill) {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest, alike := 0, 0
	for i, k := range slices.Backward(l.kills) {
		if k.System == kill.System {
			oldest = i
			alike++
		}
	}
	if alike == kept {
		l.kills = slices.Delete(l.kills, oldest, oldest+1)
	}
	l.kills = append(l.kills, kill)
	close(l.changed)
	l.changed = make(chan struct{})
}

// Boot is when the kernel's clock was zero. That clock stands still while the machine
// is suspended, and so what was written before a suspension seems younger than it is.
func Boot() time.Time {
	var monotonic unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic); err != nil {
		return time.Now()
	}
	return time.Now().Add(-time.Duration(monotonic.Nano()))
}
