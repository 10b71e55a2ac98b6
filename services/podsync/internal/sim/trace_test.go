package sim

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// trace is all that podsync did and saw in a seed, in order and with the virtual
// time: each call to the runtime, the apiserver and the mounts with its end, each
// step of the runtime, each write of an object, each result of a probe, each crash.
type trace struct {
	mu    sync.Mutex
	dir   string // of the world, which differs
	sum   hash.Hash
	steps int
	// set is the same without the order within an instant.
	set  hash.Hash
	now  map[string]int // steps of the instant
	at   string
	text *bufio.Writer // nil unless traces are kept
	file *os.File
}

// newTrace begins the trace of a seed; it is kept in -traces, if that is set.
func newTrace(seed int64, dir string) (*trace, error) {
	t := &trace{sum: sha256.New(), set: sha256.New(), now: map[string]int{}, dir: dir}
	if *traces == "" {
		return t, nil
	}
	f := os.Stdout
	if *traces != "-" {
		var err error
		if f, err = os.Create(filepath.Join(*traces, fmt.Sprint(seed))); err != nil {
			return nil, fmt.Errorf("keep the trace of seed %d: %w", seed, err)
		}
	}
	t.file, t.text = f, bufio.NewWriterSize(f, 1<<20)
	return t, nil
}

// note adds a step.
func (t *trace) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := time.Now().UTC().Format("15:04:05.000000000 ")
	line := at + strings.ReplaceAll(fmt.Sprintf(format, args...), t.dir, "") + "\n"
	_, _ = t.sum.Write([]byte(line))
	if at != t.at {
		t.instantLocked()
		t.at = at
	}
	t.now[line]++
	t.steps++
	if t.text != nil {
		_, _ = t.text.WriteString(line)
	}
}

// instantLocked ends an instant.
func (t *trace) instantLocked() {
	for _, line := range slices.Sorted(maps.Keys(t.now)) {
		_, _ = fmt.Fprintln(t.set, t.now[line], line)
	}
	clear(t.now)
}

// end is the trace in short: how many steps, the sum of them in order, and that of
// what was done at each instant, in whatever order.
func (t *trace) end() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text != nil {
		_ = t.text.Flush()
		_ = t.file.Close()
	}
	t.instantLocked()
	return fmt.Sprintf("%d %x %x", t.steps, t.sum.Sum(nil)[:8], t.set.Sum(nil)[:8])
}
