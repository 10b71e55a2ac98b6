package peer

import (
	"context"
	"fmt"
	"time"

	"github.com/polylet/polylet/internal/nodeshutdown"
	"github.com/polylet/polylet/services/nodestatus/internal/shutdown"
)

// Shutdown follows the machine's shutdown, as whoever holds logind's lock tells of it.
// It has shutdown.Line.
type Shutdown struct {
	client line
	// note is told why shutdowns are not followed, or not long enough delayed; empty:
	// all is well.
	note func(problem string)
}

// line is a nodeshutdown.Client.
type line interface {
	Run(ctx context.Context, told func(nodeshutdown.State, error)) error
	Done(since time.Time)
}

// NewShutdown returns a Shutdown of a nodeshutdown.Client.
func NewShutdown(client line, note func(problem string)) *Shutdown {
	return &Shutdown{client: client, note: note}
}

// Run has told called with each signal until ctx is done.
func (s *Shutdown) Run(ctx context.Context, told func(shutdown.Signal)) error {
	return s.client.Run(ctx, func(state nodeshutdown.State, err error) {
		switch {
		case err != nil:
			s.note(fmt.Sprintf("%v; pods are not ended before the machine", err))
			return // A shutdown that goes on goes on.
		default:
			s.note(state.Problem)
		}
		signal := shutdown.Signal{Since: state.Since, Delay: state.Delay}
		if state.Elapsed > 0 {
			signal.Began = time.Now().Add(-state.Elapsed)
		}
		told(signal)
	})
}

// Done lets the shutdown that began at since go on.
func (s *Shutdown) Done(since time.Time) { s.client.Done(since) }
