package fakecri

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Process is a container whose script is asked for. The configurations must not be
// changed.
type Process struct {
	Sandbox   *runtimeapi.PodSandboxConfig
	Container *runtimeapi.ContainerConfig
	// ImageRef is the image's identifier, "sha256:…".
	ImageRef string
	// Attempt is the container's attempt: 0 for the first start of its name.
	Attempt uint32
}

// Script is what a container's process does. The zero Script runs for ever, and exits
// with 0 at once on SIGTERM.
type Script struct {
	// Runs holds one entry per attempt; the last one goes for all later attempts.
	Runs []Run
	// OnTerm is how the process takes SIGTERM.
	OnTerm Term
	// Exec answers ExecSync; nil: exit code 0 at once. It is called without any lock.
	Exec func(ExecCall) ExecResult
	// StartErr makes StartContainer fail: the container ends as Exited, StartError, 128.
	StartErr error
	// StartDelay is how long StartContainer takes, on top of Config.Latency.
	StartDelay time.Duration
	// Log lines, written when Config.WriteLogs is set.
	Log []LogLine
	// WritableBytes is what the writable layer weighs.
	WritableBytes uint64
	// MemoryBytes and CPU (in nanocores) are what ContainerStats reports while it runs.
	MemoryBytes, CPU uint64
}

// Run is one life of a process.
type Run struct {
	// For is how long it runs; negative: until it is stopped.
	For time.Duration
	// Code is the exit code.
	Code int32
	// Reason is the reason that the runtime reports; empty: Completed or Error.
	Reason string
}

// Term is how a process takes SIGTERM.
type Term struct {
	// Ignore: it goes on, and only SIGKILL ends it.
	Ignore bool
	// After is how long it takes to exit.
	After time.Duration
	// Code is the exit code then.
	Code int32
}

// LogLine is one line of output.
type LogLine struct {
	// After is the time since the start of the process.
	After time.Duration
	// Stderr: the line goes to stderr, not stdout.
	Stderr bool
	// Text without the line's end.
	Text string
}

// ExecCall is one ExecSync.
type ExecCall struct {
	Container ContainerInfo
	Command   []string
	// Since is the time since the container's start.
	Since time.Duration
	// N counts the calls in this container, from 0.
	N int
}

// ExecResult is how an ExecSync ends.
type ExecResult struct {
	Stdout, Stderr string
	Code           int32
	// After is how long the command takes. Past the call's timeout the caller gets
	// DeadlineExceeded, as containerd answers.
	After time.Duration
	// Err fails the call itself, as when the command does not exist.
	Err error
}

// Forever runs until it is stopped.
func Forever() Script { return Script{} }

// Exits runs for the given time, then ends with the code, at every attempt.
func Exits(after time.Duration, code int32) Script {
	return Script{Runs: []Run{{For: after, Code: code}}}
}

// Sequence does one run per attempt and repeats the last.
func Sequence(runs ...Run) Script { return Script{Runs: runs} }

func (s *Script) run(attempt uint32) Run {
	if len(s.Runs) == 0 {
		return Run{For: -1}
	}
	return s.Runs[min(int(attempt), len(s.Runs)-1)]
}

func (r *Runtime) scriptFor(p Process) Script {
	if r.cfg.Script != nil {
		if s := r.cfg.Script(p); s != nil {
			return *s
		}
	}
	want := p.Container.GetImage().GetUserSpecifiedImage()
	for _, name := range []string{want, p.Container.GetImage().GetImage()} {
		if s, ok := r.cfg.Scripts[name]; ok && name != "" {
			return s
		}
	}
	if img := r.images[p.ImageRef]; img != nil {
		for _, tag := range img.names() {
			if s, ok := r.scripts[tag]; ok {
				return s
			}
		}
	}
	return Script{}
}
