// Package judge keeps the state of the judgement about pressure for all who go by
// it, so that the Node's conditions, admission and evictions never disagree.
//
// It owns that state. It must never act on it, measure, or wait.
package judge

import (
	"sync"
	"time"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// Config is what is judged by.
type Config struct {
	// Thresholds are those of the configuration.
	Thresholds []threshold.Threshold
	// Transition is how long a pressure stays after it was last seen.
	Transition time.Duration
}

// Judge judges. Safe for concurrent use.
type Judge struct {
	cfg   Config
	frame func() pressure.Frame

	mu     sync.Mutex
	state  pressure.State
	seeded bool
}

// New returns a Judge; frame returns the newest signals.
func New(cfg Config, frame func() pressure.Frame) *Judge { return &Judge{cfg: cfg, frame: frame} }

// Seed tells which pressures a run before this one has found, and when; only the first
// time counts, for later it would be what this run has found itself.
func (j *Judge) Seed(told pressure.Told) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.seeded {
		j.state, j.seeded = j.state.Seed(told.Kinds, told.Time), true
	}
}

// Seeded says whether it was told that, and its judgement can be gone by.
func (j *Judge) Seeded() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seeded
}

// Judge judges the newest signals; known is false while there were none.
func (j *Judge) Judge(now time.Time) (judgement pressure.Judgement, frame pressure.Frame, known bool) {
	frame = j.frame()
	if frame.Signals == nil {
		return pressure.Judgement{}, frame, false
	}
	thresholds := threshold.For(j.cfg.Thresholds, frame.Layout)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state, judgement = pressure.Step(j.state, thresholds, frame.Signals, j.cfg.Transition, now)
	return judgement, frame, true
}
