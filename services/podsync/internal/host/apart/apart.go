// Package apart does in processes of their own what may wait in the kernel for somebody
// who does not answer: the server of a filesystem, or the process behind one. Who waits
// there may not even end when it is killed, and a thread that does is one less for good.
//
// It owns those processes: how many there are, how long they have and what they say. Each
// is this program anew, in which Main does one call. It must never wait in the kernel for
// one itself, and never give the place of one away before it is gone.
package apart

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/polylet/polylet/internal/rpcerr"
)

// Flag is the first argument of a process that is to do a call. It is a flag, so that a
// program that knows nothing of it refuses it, instead of doing what it else does.
const Flag = "--apart"

const (
	// mostOfAnswer is how long an answer may be, in bytes.
	mostOfAnswer = 64 << 10
	// killWait is how long a process that was killed has to be gone, before it is left to
	// itself.
	killWait = 2 * time.Second
)

// ErrSilent says that a call was not over in its time, and may still be under way.
var ErrSilent = errors.New("no answer")

// namespaceKey is that of the namespace in a context.
type namespaceKey struct{}

// For says in a context whose pods a call is for, by their namespace; without it a call is
// for none, or for those of which nobody knows.
func For(ctx context.Context, namespace string) context.Context {
	return context.WithValue(ctx, namespaceKey{}, namespace)
}

// Namespace is what For has said; empty when nobody has.
func Namespace(ctx context.Context) string {
	namespace, _ := ctx.Value(namespaceKey{}).(string)
	return namespace
}

// Config of Processes.
type Config struct {
	// Program is what is begun with Flag, the call's name and its arguments; empty is this
	// process's own.
	Program string
	// Most is how many there are at once, and MostOfOne how many for one of those who may
	// not answer. One that was killed and is not gone counts. Of one namespace there are
	// never more than there are places left: who makes pods says which servers they wait for,
	// and how many there are.
	Most, MostOfOne int
}

// Processes do calls; safe for concurrent use.
type Processes struct {
	cfg Config

	mu    sync.Mutex
	all   int
	of    map[string]int
	in    map[string]int // by namespace
	freed chan struct{}  // closed with the next place that is given back
}

// New makes Processes; it starts none.
func New(cfg Config) *Processes {
	if cfg.Program == "" {
		cfg.Program = "/proc/self/exe"
	}
	return &Processes{cfg: cfg, of: map[string]int{}, in: map[string]int{}, freed: make(chan struct{})}
}

// Do has a process do a call, and waits for what it says until ctx is done. whose names who
// may not answer. The error is ErrSilent when it was not over by then: the process is
// killed, and does nothing more, though what it has asked the kernel for may still be done.
func (p *Processes) Do(ctx context.Context, whose, call string, args ...string) (string, error) {
	return p.Follow(ctx, whose, func(string) {}, call, args...)
}

// Follow is Do of a call that says by Tell how far it is; told hears it, from another
// goroutine, and may still when Follow has returned.
func (p *Processes) Follow(ctx context.Context, whose string, told func(string), call string, args ...string) (string, error) {
	namespace := Namespace(ctx)
	if err := p.take(ctx, namespace, whose); err != nil {
		return "", fmt.Errorf("%s: %w", call, err)
	}
	cmd := exec.CommandContext(ctx, p.cfg.Program, append([]string{Flag, call}, args...)...)
	cmd.Env = []string{"GOMAXPROCS=1"} // nothing else of this process's is its affair
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.giveBack(namespace, whose)
		return "", fmt.Errorf("%s: start a process for it: %w", call, err)
	}
	said := make(chan result, 1)
	go func() {
		// What it says ends with the process: so that is waited for without a thread, which
		// Wait would take for as long as it is in the kernel.
		r := listen(out, told)
		_, _ = io.Copy(io.Discard, out)
		if ended := cmd.Wait(); r.broken != nil {
			r.broken = errors.Join(ended, r.broken)
		}
		p.giveBack(namespace, whose)
		said <- r
	}()
	return wait(ctx, call, said)
}

// wait waits for what a process says, and a moment longer than ctx for the end of one that
// is killed with it.
func wait(ctx context.Context, call string, said <-chan result) (string, error) {
	var r result
	select {
	case r = <-said:
	case <-ctx.Done():
		timeout := time.NewTimer(killWait)
		defer timeout.Stop()
		select {
		case r = <-said:
		case <-timeout.C:
			r.broken = errors.New("the process that waits for it does not end")
		}
	}
	switch {
	case r.broken != nil && ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w: %w", call, ErrSilent, context.Cause(ctx))
	case r.broken != nil:
		return "", fmt.Errorf("%s: the process that was to do it has failed: %w", call, r.broken)
	case r.Error != "":
		return "", errors.New(r.Error)
	}
	return r.Answer, nil
}

// result is what a process says on its standard output, in one line.
type result struct {
	// Told is how far it is; the last line has what came of it instead.
	Told   string `json:"told,omitempty"`
	Answer string `json:"answer,omitempty"`
	Error  string `json:"error,omitempty"`

	broken error // it said nothing
}

// listen hears what a process says to its end.
func listen(out io.Reader, told func(string)) result {
	last := result{broken: io.ErrUnexpectedEOF}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, mostOfAnswer)
	for lines.Scan() {
		var r result
		r.broken = json.Unmarshal(lines.Bytes(), &r)
		if r.broken == nil && r.Told != "" {
			told(r.Told)
			continue
		}
		last = r
	}
	if err := lines.Err(); err != nil {
		last.broken = err
	}
	return last
}

// take waits for a place.
func (p *Processes) take(ctx context.Context, namespace, whose string) error {
	for {
		p.mu.Lock()
		all, own, in, freed := p.all, p.of[whose], p.in[namespace], p.freed
		// The first namespace so gets half of the places, the next half of what it leaves …
		free := in < p.cfg.Most-all && own < p.cfg.MostOfOne
		if free {
			p.all++
			p.of[whose]++
			p.in[namespace]++
		}
		p.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w: %d processes wait for it already, %d for the pods of its namespace, and %d in all: %w", rpcerr.ErrExhausted, ErrSilent, own, in, all, context.Cause(ctx))
		}
	}
}

func (p *Processes) giveBack(namespace, whose string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.of[whose]--; p.of[whose] == 0 {
		delete(p.of, whose)
	}
	if p.in[namespace]--; p.in[namespace] == 0 {
		delete(p.in, namespace)
	}
	close(p.freed)
	p.freed = make(chan struct{})
}

// Tell says how far a call is, from within it.
func Tell(how string) { _ = json.NewEncoder(os.Stdout).Encode(result{Told: how}) }

// Call is what a process does of its own.
type Call func(args []string) (answer string, err error)

// Main is what a process does whose arguments, without the program's name, begin with Flag:
// one of the calls; it says what came of it on out. The code is what it ends with.
func Main(args []string, calls map[string]Call, out io.Writer) (code int) {
	var r result
	switch {
	case len(args) < 2 || args[0] != Flag:
		r.Error = "this command is podsync's own"
	case calls[args[1]] == nil:
		r.Error = fmt.Sprintf("there is no call %q: podsync and what it has started are of different releases; restart podsync", args[1])
	default:
		answer, err := calls[args[1]](args[2:])
		if r.Answer = answer; err != nil {
			r.Error = err.Error()
		}
	}
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return 1
	}
	return 0
}
