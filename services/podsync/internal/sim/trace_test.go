package sim

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"hash"
	"hash/fnv"
	"os"
	"path/filepath"
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
	line  []byte // the last step
	// set is the same without the order: the sum of the hashes of all steps, in each of
	// which its time is.
	set  uint64
	text *bufio.Writer // nil unless traces are kept
	file *os.File
}

// newTrace begins the trace of a seed; it is kept in -traces, if that is set.
func newTrace(seed int64, dir string) (*trace, error) {
	t := &trace{sum: sha256.New(), dir: dir}
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
	line := time.Now().UTC().AppendFormat(t.line[:0], "15:04:05.000000000 ")
	line = append(line, strings.ReplaceAll(fmt.Sprintf(format, args...), t.dir, "")...)
	t.line = append(line, '\n')
	_, _ = t.sum.Write(t.line)
	step := fnv.New64a()
	_, _ = step.Write(t.line)
	t.set += step.Sum64()
	t.steps++
	if t.text != nil {
		_, _ = t.text.Write(t.line)
	}
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
	return fmt.Sprintf("%d %x %016x", t.steps, t.sum.Sum(nil)[:8], t.set)
}
