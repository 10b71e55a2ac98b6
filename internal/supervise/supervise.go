// Package supervise keeps child processes running: start, privileges, passed
// sockets, log lines, watchdog, restart with backoff, orderly stop. It must never know
// what a child does.
package supervise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/wake"
)

// Child describes one process.
type Child struct {
	// Name prefixes its log lines.
	Name string
	// Args are its arguments, without the program. It is called before each
	// start; an error counts as a failed start.
	Args func() ([]string, error)
	// Identity is who it runs as.
	Identity Identity
	// Sockets are listening sockets to pass, by name, as systemd passes them. It is
	// called before each start; an error counts as a failed start. Nil: none.
	Sockets func() ([]Socket, error)
	// Input is a file to be the child's standard input, opened with this process's
	// rights at each start; where it cannot be opened there is none, as with "".
	Input string
	// PlainLog says, at each start, whether the lines are left as they are, for logs of
	// JSON objects; nil: they are not.
	PlainLog func() bool
}

// Socket is a listening socket under a name.
type Socket struct {
	Name string
	File *os.File
}

// Config of all children.
type Config struct {
	// Program is the executable of every child; it must answer LaunchCommand
	// with Launch.
	Program string
	// LaunchCommand is the program's first argument for Launch.
	LaunchCommand string
	// Output takes the children's lines.
	Output io.Writer
	// Log is the supervisor's own.
	Log logr.Logger
	// StopWithin is how long one child may take to stop before it is killed; 5 s when zero.
	StopWithin time.Duration
	// Watchdog is how often a child that has said on its lifeline that it answers is to
	// say so again, at least. One that is silent for a quarter to a half longer is ended
	// and started again; zero: none is.
	Watchdog time.Duration
	// Ended is told of each process that ended without being asked to, and of each start
	// that failed, with its error, which has the last line that it wrote. It must return at
	// once; nil: nobody is told.
	Ended func(name string, err error)
	// Backoff between restarts; 100 ms doubling to 10 s when zero, forgotten
	// when a process has run for healthyAfter.
	Backoff backoff.Config
}

// healthyAfter is how long a child must run for its failures to be forgotten. It
// is short: a restart every two seconds costs little, and a node whose gateway is
// away for ten seconds after two unlucky kills costs much.
const healthyAfter = 2 * time.Second

// Supervisor runs children. It is made for one Run.
type Supervisor struct {
	cfg      Config
	children []*running
	output   sync.Mutex
}

type running struct {
	Child
	// stop ends the restarts; stopped is closed when the last process is gone.
	stop    chan struct{}
	stopped chan struct{}
	// again cuts the pause before the next start short.
	again wake.Signal
	// last is the last line that the last process wrote; keep's own.
	last string
	// process is the current one, nil between two; gone is closed when it has ended, and
	// asked says that it was to.
	mu      sync.Mutex
	process *os.Process
	gone    chan struct{}
	asked   bool
}

// New returns a supervisor; nothing is started.
func New(cfg Config, children []Child) *Supervisor {
	if cfg.StopWithin <= 0 {
		cfg.StopWithin = 5 * time.Second
	}
	if cfg.Backoff == (backoff.Config{}) {
		cfg.Backoff = backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second}
	}
	s := &Supervisor{cfg: cfg}
	for _, c := range children {
		s.children = append(s.children, &running{Child: c, stop: make(chan struct{}), stopped: make(chan struct{}), again: wake.New()})
	}
	return s
}

// Run starts all children at once, restarts each that ends, and, when ctx is
// done, stops them one after the other in the reverse order of New's list:
// SIGTERM, then SIGKILL after StopWithin. One that has ended in order before its turn is not
// started again then. It returns when all are gone.
func (s *Supervisor) Run(ctx context.Context) error {
	for _, c := range s.children {
		go s.keep(ctx, c)
	}
	<-ctx.Done()
	for i := len(s.children) - 1; i >= 0; i-- {
		s.end(s.children[i])
	}
	return nil
}

// errOrderly is that a process has ended as it does upon a SIGTERM. Of one that was asked to from
// here nobody reads it.
var errOrderly = errors.New("exit status 0, as after a SIGTERM, which polylet run did not send")

// keep runs a child again and again. The goroutine owns its thread: the kernel
// sends a child's parent-death signal when the thread that forked it ends.
func (s *Supervisor) keep(ctx context.Context, c *running) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.stopped)
	delay := backoff.New(s.cfg.Backoff)
	for {
		begin := time.Now()
		c.last = ""
		err := s.once(c)
		select {
		case <-c.stop:
			return
		default:
		}
		if errors.Is(err, errOrderly) && ctx.Err() != nil {
			return // Who ends this process has ended the others with it.
		}
		if c.wasAsked() {
			delay.Reset()
			s.cfg.Log.Info("Process ended as it was asked to, starting it again", "process", c.Name)
			continue
		}
		if s.cfg.Ended != nil {
			s.cfg.Ended(c.Name, withLast(err, c.last))
		}
		next := pause(delay, time.Since(begin))
		s.cfg.Log.Error(err, "Process ended, starting it again", "process", c.Name,
			"ranFor", time.Since(begin).Round(time.Millisecond).String(), "in", next.String())
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-c.again:
			timer.Stop()
			delay.Reset()
		case <-c.stop:
			timer.Stop()
			return
		}
	}
}

// Restart ends a child in order, SIGTERM and then SIGKILL after StopWithin, and has it
// started again at once; one that waits for its next start does so no longer. It
// returns when the old process is gone.
func (s *Supervisor) Restart(name string) error {
	at := slices.IndexFunc(s.children, func(c *running) bool { return c.Name == name })
	if at < 0 {
		return fmt.Errorf("start %s again: it is not supervised here", name)
	}
	c := s.children[at]
	c.mu.Lock()
	gone := c.gone
	c.asked = gone != nil
	if gone == nil {
		c.again.Set()
	}
	c.mu.Unlock()
	if gone == nil {
		return nil
	}
	c.signal(syscall.SIGTERM)
	timer := time.NewTimer(s.cfg.StopWithin)
	defer timer.Stop()
	select {
	case <-gone:
		return nil
	case <-timer.C:
	}
	s.cfg.Log.Info("Process did not end in time for its new start, killing it", "process", name, "after", s.cfg.StopWithin.String())
	c.signal(syscall.SIGKILL)
	<-gone
	return nil
}

// Pid is the process that a child is now; 0: it is none, or not supervised here.
func (s *Supervisor) Pid(name string) int {
	for _, c := range s.children {
		if c.Name != name {
			continue
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.process != nil {
			return c.process.Pid
		}
	}
	return 0
}

func withLast(err error, line string) error {
	if line == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, line)
}

func (c *running) wasAsked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = false
	return asked
}

// pause is how long to wait before a process is started again that has run for ran.
func pause(delay *backoff.Backoff, ran time.Duration) time.Duration {
	if ran >= healthyAfter {
		delay.Reset()
	}
	return delay.Next()
}

// once runs one process from start to end.
func (s *Supervisor) once(c *running) error {
	cmd, err := s.command(c)
	if err != nil {
		return err
	}
	say, started, err := s.watched(c)
	if err != nil {
		return err
	}
	if say != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, say)
	}
	lines := &lineWriter{supervisor: s, prefix: "[" + c.Name + "] "}
	if c.PlainLog != nil && c.PlainLog() {
		lines.prefix = ""
	}
	defer lines.flush()
	cmd.Stdout, cmd.Stderr = lines, lines
	// A grandchild that keeps the pipe open must not hold the restart up.
	cmd.WaitDelay = time.Second
	c.mu.Lock()
	select {
	case <-c.stop:
		c.mu.Unlock()
		started(false)
		return errors.New("stopping")
	default:
	}
	err = cmd.Start()
	if err == nil {
		c.process, c.gone = cmd.Process, make(chan struct{})
		select {
		case <-c.again: // it was started again
		default:
		}
	}
	c.mu.Unlock()
	ended := started(err == nil)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.cfg.Program, err)
	}
	defer ended()
	s.cfg.Log.Info("Process started", "process", c.Name, "pid", cmd.Process.Pid, "user", c.Identity.String())
	err = cmd.Wait()
	c.mu.Lock()
	close(c.gone)
	c.process, c.gone = nil, nil
	c.mu.Unlock()
	if err == nil {
		err = errOrderly
	}
	lines.flush()
	c.last = lines.last
	return err
}

func (s *Supervisor) command(c *running) (*exec.Cmd, error) {
	args, err := c.Args()
	if err != nil {
		return nil, err
	}
	var sockets []Socket
	if c.Sockets != nil {
		if sockets, err = c.Sockets(); err != nil {
			return nil, err
		}
	}
	plan := launchPlan{Identity: c.Identity, Parent: os.Getpid(), Lifeline: s.lifeline(len(sockets)), Input: c.Input}
	cmd := exec.Command(s.cfg.Program)
	for _, socket := range sockets {
		plan.Sockets = append(plan.Sockets, socket.Name)
		cmd.ExtraFiles = append(cmd.ExtraFiles, socket.File)
	}
	encoded, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	cmd.Args = append([]string{s.cfg.Program, s.cfg.LaunchCommand, string(encoded), "--"}, args...)
	// A group of its own: Ctrl-C in a terminal reaches only the supervisor,
	// which then stops the children in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

func (s *Supervisor) end(c *running) {
	close(c.stop)
	c.signal(syscall.SIGTERM)
	timer := time.NewTimer(s.cfg.StopWithin)
	defer timer.Stop()
	select {
	case <-c.stopped:
	case <-timer.C:
		s.cfg.Log.Info("Process did not stop in time, killing it", "process", c.Name, "after", s.cfg.StopWithin.String())
		c.signal(syscall.SIGKILL)
		<-c.stopped
	}
}

func (c *running) signal(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		// It may have ended just now; Wait tells.
		_ = c.process.Signal(sig)
	}
}

// maxLine bounds what is kept of a line that does not end.
const maxLine = 64 << 10

// lineWriter writes whole lines with a prefix, so that children do not mix.
type lineWriter struct {
	supervisor *Supervisor
	prefix     string
	rest       []byte
	last       string
}

// maxLast bounds what is kept of the last line.
const maxLast = 1 << 10

// Write implements io.Writer; os/exec calls it from one goroutine, since
// standard output and error are the same writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		w.emit(append(w.rest, p[:i]...))
		w.rest, p = w.rest[:0], p[i+1:]
	}
	w.rest = append(w.rest, p...)
	if len(w.rest) > maxLine {
		w.flush()
	}
	return n, nil
}

func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.emit(w.rest)
		w.rest = w.rest[:0]
	}
}

func (w *lineWriter) emit(line []byte) {
	w.last = strings.ToValidUTF8(string(line[:min(len(line), maxLast)]), "")
	w.supervisor.output.Lock()
	defer w.supervisor.output.Unlock()
	// Nobody is there to tell when standard error cannot be written.
	_, _ = fmt.Fprintf(w.supervisor.cfg.Output, "%s%s\n", w.prefix, line)
}
