package nodelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/polylet/polylet/internal/rpcerr"
)

const (
	// longestQuery bounds a query, as the kubelet's.
	longestQuery = 30 * time.Second
	// mostQueries run at once: each runs a program.
	mostQueries = 4
	// mostUnits bounds the list of units, in bytes.
	mostUnits = 4 << 20
)

// Program runs journalctl; out gets both of its outputs.
type Program func(ctx context.Context, args []string, out io.Writer) error

// Reader answers queries. See NewReader.
type Reader struct {
	dir     *Dir
	journal Program
	slots   chan struct{}
}

// NewReader returns a Reader of files below dir and of a journal; nil is the
// host's.
func NewReader(dir *Dir, journal Program) *Reader {
	if journal == nil {
		journal = journalctl
	}
	return &Reader{dir: dir, journal: journal, slots: make(chan struct{}, mostQueries)}
}

// Query writes the log of services to w. It returns within 30 seconds; a query
// that is not allowed is rpcerr.ErrInvalid, one too many rpcerr.ErrExhausted.
// What goes wrong with one service is a line in the answer, not an error.
func (r *Reader) Query(ctx context.Context, q Query, w io.Writer) error {
	if err := q.Validate(); err != nil {
		return fmt.Errorf("%w: %w", rpcerr.ErrInvalid, err)
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	default:
		return fmt.Errorf("%w: %d queries of the node's logs are under way: try again", rpcerr.ErrExhausted, mostQueries)
	}
	ctx, cancel := context.WithTimeout(ctx, longestQuery)
	defer cancel()
	units := r.units(ctx)
	var journal, files []string
	for _, s := range q.Services {
		if inJournal(units, s) {
			journal = append(journal, s)
		} else {
			files = append(files, s)
		}
	}
	out := &sink{w: w}
	if len(journal) > 0 {
		r.fromJournal(ctx, q, journal, out)
	}
	if len(files) > 0 && q.hasOptions() {
		fmt.Fprintf(out, "options present and query resolved to log files for %v\ntry without specifying options\n", files)
		return out.failed()
	}
	for _, s := range files {
		r.fromFiles(ctx, s, out)
	}
	return out.failed()
}

// units are those that the journal has entries of; none without a journal.
func (r *Reader) units(ctx context.Context) []string {
	var list bytes.Buffer
	if err := r.journal(ctx, []string{"--field=_SYSTEMD_UNIT"}, &limited{w: &list, left: mostUnits}); err != nil {
		return nil
	}
	return strings.Fields(list.String())
}

func (r *Reader) fromJournal(ctx context.Context, q Query, services []string, out *sink) {
	err := r.journal(ctx, q.arguments(services), out)
	var exit *exec.ExitError
	switch {
	case err == nil, out.failed() != nil:
	case ctx.Err() != nil:
		fmt.Fprintf(out, "\nthe query took longer than %s and was stopped: narrow it with sinceTime, tailLines or pattern\n", longestQuery)
	case errors.As(err, &exit) && exit.ExitCode() == 1: // nothing matches
	default:
		fmt.Fprintf(out, "\njournalctl for %v: %v\n", services, err)
	}
}

func (r *Reader) fromFiles(ctx context.Context, service string, out *sink) {
	for _, name := range candidates(service) {
		f, err := r.dir.Open(name)
		if err != nil {
			continue
		}
		defer func() { _ = f.Close() }()
		if _, err := io.Copy(out, &untilDone{ctx, f}); err != nil && out.failed() == nil {
			fmt.Fprintf(out, "\nreading the log of %s: %v\n", service, err)
		}
		return
	}
	fmt.Fprintf(out, "log not found for %s\n", service)
}

// journalctl runs the host's. It is looked for in fixed places, runs without
// the environment, and is killed with ctx.
func journalctl(ctx context.Context, args []string, out io.Writer) error {
	for _, path := range []string{"/usr/bin/journalctl", "/bin/journalctl"} {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Env = []string{"LC_ALL=C.UTF-8", "PATH=/usr/bin:/bin"}
		cmd.Stdout, cmd.Stderr = out, out
		cmd.WaitDelay = time.Second
		return cmd.Run()
	}
	return errors.New("journalctl is not installed")
}

// sink remembers that whoever reads has gone, or takes nothing any more: then nothing more
// is written. A program that was killed leaves behind who passes its output on, so that
// two may come to write at once, of which the second is refused.
type sink struct {
	w       io.Writer
	writing sync.Mutex

	mu  sync.Mutex
	err error
}

var errStuck = fmt.Errorf("%w: the client does not read the log", rpcerr.ErrTimeout)

// failed is why nothing more is written; nil while something is.
func (s *sink) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *sink) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *sink) Write(p []byte) (int, error) {
	if !s.writing.TryLock() {
		s.fail(errStuck)
		return 0, errStuck
	}
	defer s.writing.Unlock()
	if err := s.failed(); err != nil {
		return 0, err
	}
	n, err := s.w.Write(p)
	if err != nil {
		s.fail(err)
	}
	return n, err
}

// limited drops what comes after so many bytes.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	_, err := l.w.Write(p[:n])
	return len(p), err
}

// untilDone ends a read with its context.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
