package sim

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"sync"
	"time"
)

// trace is all that was done in a seed, in order and with the virtual time.
type trace struct {
	mu    sync.Mutex
	sum   hash.Hash
	steps int
	out   io.Writer // nil unless it is told
}

func newTrace() *trace { return &trace{sum: sha256.New()} }

func (t *trace) note(words ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := time.Now().UTC().Format("15:04:05.000000000 ") + fmt.Sprintln(words...)
	_, _ = io.WriteString(t.sum, line)
	t.steps++
	if t.out != nil {
		_, _ = io.WriteString(t.out, line)
	}
}

// end is the trace in short.
func (t *trace) end() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%d %x", t.steps, t.sum.Sum(nil)[:8])
}
