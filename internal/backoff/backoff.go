// Package backoff computes how long to wait between attempts. It owns the
// arithmetic only; it must never decide what is worth retrying.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Config is an exponential backoff.
type Config struct {
	// Initial is the first delay; 50 ms when zero.
	Initial time.Duration
	// Max bounds the delay; 2 s when zero.
	Max time.Duration
	// Factor multiplies after each attempt; 2 when below 1.
	Factor float64
	// Jitter spreads a delay by ±Jitter (0.2 is ±20 %); none when zero.
	Jitter float64
	// ResetAfter forgets earlier failures when the last Next is longer ago
	// than this; never when zero.
	ResetAfter time.Duration
}

// Backoff is the state of one retried thing. Not safe for concurrent use.
type Backoff struct {
	cfg  Config
	next time.Duration
	last time.Time
}

// New returns a Backoff before its first attempt.
func New(cfg Config) *Backoff {
	if cfg.Initial <= 0 {
		cfg.Initial = 50 * time.Millisecond
	}
	if cfg.Max <= 0 {
		cfg.Max = 2 * time.Second
	}
	if cfg.Factor < 1 {
		cfg.Factor = 2
	}
	return &Backoff{cfg: cfg, next: cfg.Initial}
}

// Next returns how long to wait before the next attempt, and counts one failure.
func (b *Backoff) Next() time.Duration {
	now := time.Now()
	if b.cfg.ResetAfter > 0 && !b.last.IsZero() && now.Sub(b.last) > b.cfg.ResetAfter {
		b.Reset()
	}
	b.last = now
	delay := min(b.next, b.cfg.Max)
	b.next = min(time.Duration(float64(delay)*b.cfg.Factor), b.cfg.Max)
	if b.cfg.Jitter > 0 {
		delay = time.Duration(float64(delay) * (1 + b.cfg.Jitter*(2*rand.Float64()-1)))
	}
	return delay
}

// Reset forgets all failures: the next delay is Initial again.
func (b *Backoff) Reset() { b.next = b.cfg.Initial }

// Wait sleeps for Next, or until ctx is done, whose error it then returns.
func (b *Backoff) Wait(ctx context.Context) error {
	t := time.NewTimer(b.Next())
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
