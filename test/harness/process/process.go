// Package process runs one child process for a test: log file, readiness, stop
// by pid, kill and restart. It must never signal a process that it did not
// start, and never match processes by name.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Config says what to run.
type Config struct {
	// Name is used in errors and log lines.
	Name string
	// Path is the executable.
	Path string
	// Args are the arguments without the program name.
	Args []string
	// Prefix is a program and its arguments that become Path with Args, the same
	// process going on: what enters namespaces, say.
	Prefix []string
	// Env is added to the harness's own environment.
	Env []string
	// LogFile receives stdout and stderr, appended.
	LogFile string
	// Ready is asked until it returns nil; nil means ready once started.
	Ready func(context.Context) error
	// ReadyWithin bounds the wait for Ready. Zero means a minute.
	ReadyWithin time.Duration
	// StopWithin is the time between SIGTERM and SIGKILL. Zero means 10 s.
	StopWithin time.Duration
}

// Process is a child process that can be stopped, killed and started again. It
// is safe for use by several goroutines.
type Process struct {
	cfg Config

	mu  sync.Mutex
	run *run
}

// run is one life of the process.
type run struct {
	pid  int
	done chan struct{}
	err  error // valid after done is closed
}

// New returns a process that is not started yet.
func New(cfg Config) *Process {
	if cfg.ReadyWithin == 0 {
		cfg.ReadyWithin = time.Minute
	}
	if cfg.StopWithin == 0 {
		cfg.StopWithin = 10 * time.Second
	}
	return &Process{cfg: cfg}
}

// Start starts the process and waits until it is ready. A process that exits or
// is not ready in time is stopped, and the error carries the end of its log.
func (p *Process) Start(ctx context.Context) error {
	if err := p.Launch(); err != nil {
		return err
	}
	if err := p.WaitReady(ctx); err != nil {
		p.Stop()
		return err
	}
	return nil
}

// Launch starts the process without waiting for readiness.
func (p *Process) Launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && !p.run.exited() {
		return fmt.Errorf("start %s: it already runs with pid %d", p.cfg.Name, p.run.pid)
	}
	r := &run{done: make(chan struct{})}
	started := make(chan error, 1)
	go p.live(r, started)
	if err := <-started; err != nil {
		return fmt.Errorf("start %s (%s): %w", p.cfg.Name, p.cfg.Path, err)
	}
	p.run = r
	return nil
}

// live starts the child and waits for its end on one locked thread: the kernel
// sends the parent-death signal when the starting thread ends, not the process.
func (p *Process) live(r *run, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := os.OpenFile(p.cfg.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		started <- err
		return
	}
	defer out.Close()
	argv := slices.Concat(p.cfg.Prefix, []string{p.cfg.Path}, p.cfg.Args)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), p.cfg.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	r.pid = cmd.Process.Pid
	started <- nil
	r.err = cmd.Wait()
	close(r.done)
}

// WaitReady asks the readiness check until it passes.
func (p *Process) WaitReady(ctx context.Context) error {
	if p.cfg.Ready == nil {
		return nil
	}
	r := p.current()
	if r == nil {
		return fmt.Errorf("wait for %s: it was never started", p.cfg.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.ReadyWithin)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		attempt, done := context.WithTimeout(ctx, 5*time.Second)
		err := p.cfg.Ready(attempt)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-r.done:
			return fmt.Errorf("%s exited before it was ready (%v); its log %s ends with:\n%s",
				p.cfg.Name, r.err, p.cfg.LogFile, Tail(p.cfg.LogFile, 30))
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready within %s: %w; its log %s ends with:\n%s",
				p.cfg.Name, p.cfg.ReadyWithin, err, p.cfg.LogFile, Tail(p.cfg.LogFile, 30))
		case <-tick.C:
		}
	}
}

// Stop sends SIGTERM, and SIGKILL when the process does not end in time. It
// returns when the process is gone; stopping what does not run is not an error.
func (p *Process) Stop() {
	r := p.current()
	if r == nil || r.exited() {
		return
	}
	r.signal(syscall.SIGTERM)
	select {
	case <-r.done:
	case <-time.After(p.cfg.StopWithin):
		p.Kill()
	}
}

// Kill sends SIGKILL and waits until the process is gone.
func (p *Process) Kill() {
	r := p.current()
	if r == nil {
		return
	}
	r.signal(syscall.SIGKILL)
	<-r.done
}

// Pid returns the pid of the current life, or 0 when the process never ran.
func (p *Process) Pid() int {
	if r := p.current(); r != nil {
		return r.pid
	}
	return 0
}

// Done is closed when the current life has ended; nil when there is none.
func (p *Process) Done() <-chan struct{} {
	if r := p.current(); r != nil {
		return r.done
	}
	return nil
}

// ExitErr returns how the last run ended; nil while it runs or after exit 0.
func (p *Process) ExitErr() error {
	r := p.current()
	if r == nil || !r.exited() {
		return nil
	}
	return r.err
}

// Name returns the configured name.
func (p *Process) Name() string { return p.cfg.Name }

// LogFile returns the path of the log.
func (p *Process) LogFile() string { return p.cfg.LogFile }

func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

func (r *run) exited() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// signal reaches the process only while it is not reaped, so that a reused pid
// is never hit.
func (r *run) signal(sig syscall.Signal) {
	if r.exited() {
		return
	}
	if err := syscall.Kill(r.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		fmt.Fprintf(os.Stderr, "signal %d to pid %d: %v\n", sig, r.pid, err)
	}
}
