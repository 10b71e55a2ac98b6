package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/polylet/polylet/test/harness/process"
)

// slowest is how many tests are named at the end, with how long they took.
const slowest = 12

// ended is a test that ran.
type ended struct {
	wish
	took   time.Duration
	output []byte
	err    error
}

// runner runs tests in its places.
type runner struct {
	*program
	dir    string // for what they print
	places int
	out    io.Writer
	began  time.Time
}

// all runs what waits and returns the exit code of it all.
func (r *runner) all(ctx context.Context, q queue) (code int, err error) {
	results := make(chan ended)
	free, running := r.places, 0
	var done []ended
	for {
		for ctx.Err() == nil {
			w, ok := q.next(free, r.places)
			if !ok {
				break
			}
			free -= w.places
			running++
			go func() { results <- r.one(ctx, w) }()
		}
		if running == 0 {
			break
		}
		e := <-results
		free += e.places
		running--
		done = append(done, e)
		if r.show(e) {
			code = 1
		}
	}
	if ctx.Err() != nil || len(q) > 0 {
		return 0, fmt.Errorf("broken off with %d tests that did not run", len(q))
	}
	r.times(done)
	if code != 0 {
		fmt.Fprintln(r.out, "FAIL") // as a program that ran to its end, which tools/twice looks for
	}
	return code, nil
}

// one runs a test.
func (r *runner) one(ctx context.Context, w wish) ended {
	began := time.Now()
	left := r.within - time.Since(r.began)
	if r.within > 0 && left <= 0 {
		return ended{wish: w, err: fmt.Errorf("nothing is left of %s", r.within)}
	}
	log := filepath.Join(r.dir, w.name)
	p := process.New(process.Config{Name: w.name, Path: r.path, Args: r.only(w.name, left), LogFile: log, StopWithin: time.Second})
	if err := p.Launch(); err != nil {
		return ended{wish: w, err: err}
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
	}
	output, err := os.ReadFile(log)
	return ended{wish: w, took: time.Since(began), output: output, err: errors.Join(p.ExitErr(), err)}
}

// show prints what a test printed, and says whether it failed. What it says of its own
// stands at the beginning of a line, or whoever looks for it there (tools/twice) takes a
// test that was killed for one that passed.
func (r *runner) show(e ended) (failed bool) {
	var said, passed bool
	for line := range bytes.Lines(e.output) {
		switch {
		case bytes.Equal(line, []byte("PASS\n")), bytes.Equal(line, []byte("FAIL\n")):
			continue // is said of all
		case bytes.HasPrefix(line, []byte("--- FAIL: "+e.name+" (")), bytes.HasPrefix(line, []byte("panic: ")), bytes.HasPrefix(line, []byte("fatal error: ")):
			said = true
		case tells(line, "PASS", e.name), tells(line, "SKIP", e.name):
			passed = true
		}
		_, _ = r.out.Write(line) // whoever read it is gone
	}
	if n := len(e.output); n > 0 && e.output[n-1] != '\n' {
		fmt.Fprintln(r.out)
	}
	if e.err == nil && r.says && !passed {
		e.err = errors.New("its process ended as if all were well, and the test did not say that it passed")
	}
	if e.err != nil && (!said || !exited(e.err)) {
		fmt.Fprintf(r.out, "fatal error: %s: %v\n", e.name, e.err)
	}
	return e.err != nil
}

// tells says whether a line has what a test prints when it ended so: what it said before
// may have no end of a line.
func tells(line []byte, how, name string) bool {
	return bytes.Contains(line, []byte("--- "+how+": "+name+" ("))
}

// exited says whether a test ended by itself, as one does that has failed.
func exited(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.Exited()
}

// times says how long it took.
func (r *runner) times(done []ended) {
	var sum time.Duration
	for _, e := range done {
		sum += e.took
	}
	fmt.Fprintf(r.out, "%d tests in %s, %s one after the other, %s of a processor; the longest:\n",
		len(done), time.Since(r.began).Round(time.Second), sum.Round(time.Second), worked().Round(time.Second))
	slices.SortFunc(done, func(a, b ended) int { return cmp.Compare(b.took, a.took) })
	for _, e := range done[:min(slowest, len(done))] {
		fmt.Fprintf(r.out, "%8.1fs  %s\n", e.took.Seconds(), e.name)
	}
}

// worked is the processor time of the tests and of what they waited for.
func worked() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
