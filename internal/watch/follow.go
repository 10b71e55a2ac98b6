package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/health"
)

// Header is what Follow needs to know of a received frame.
type Header struct {
	// Epoch and Revision as the sender set them.
	Epoch, Revision uint64
	// Snapshot is true for the first frame of a stream.
	Snapshot bool
}

// Follower describes a stream that is to be kept open.
type Follower[F any] struct {
	// Name is what the stream is called in logs and in the health state, e.g. "podsync".
	Name string
	// Health gets Name's readiness; nil reports to nobody.
	Health health.Reporter
	// Connect opens the stream and returns its receive function. The stream
	// must end when ctx does.
	Connect func(ctx context.Context) (recv func() (F, error), err error)
	// Header reads a frame's header.
	Header func(F) Header
	// Handle takes a frame in. It is called from one goroutine, always with a
	// snapshot first after a (re)connection. An error reconnects.
	Handle func(ctx context.Context, frame F) error
	// Backoff between connections; 50 ms to 2 s with jitter when zero.
	Backoff backoff.Config
}

// Follow keeps the stream open until ctx is done, and returns nil then. A
// broken stream, a gap in the revisions or an epoch that changes within a
// stream leads to a new stream, which starts with a snapshot again.
func Follow[F any](ctx context.Context, f Follower[F]) error {
	if f.Health == nil {
		f.Health = health.Discard()
	}
	if f.Backoff == (backoff.Config{}) {
		f.Backoff = backoff.Config{Initial: 50 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.2}
	}
	log := klog.FromContext(ctx).WithValues("stream", f.Name)
	wait := backoff.New(f.Backoff)
	for failed := false; ctx.Err() == nil; failed = true {
		received, err := f.once(ctx, failed)
		if ctx.Err() != nil {
			return nil
		}
		if received {
			wait.Reset()
			log.Info("Stream ended, opening it again", "err", err)
		} else {
			log.V(2).Info("Stream did not open, trying again", "err", err)
		}
		f.Health.Set(f.Name, false, fmt.Sprintf("stream to %s: %v; it is opened again by itself", f.Name, err))
		if wait.Wait(ctx) != nil {
			return nil
		}
	}
	return nil
}

// once runs one stream, of which one before may have failed; received says whether its
// snapshot was handled.
func (f Follower[F]) once(parent context.Context, failed bool) (received bool, err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	recv, err := f.Connect(ctx)
	if err != nil {
		return false, err
	}
	if failed { // What that one failed with is over.
		f.Health.Set(f.Name, false, fmt.Sprintf("stream to %s: it is open, and nothing was said yet; who serves it may wait for something itself, see its health", f.Name))
	}
	var last Header
	for {
		frame, err := recv()
		if err != nil {
			return received, err
		}
		header := f.Header(frame)
		if err := check(last, header, received); err != nil {
			return received, err
		}
		last = header
		if err := f.Handle(ctx, frame); err != nil {
			return received, fmt.Errorf("handle frame %d: %w", header.Revision, err)
		}
		if !received {
			received = true
			f.Health.Set(f.Name, true, "")
		}
	}
}

// ErrGap is why a stream is started over though it did not break.
var ErrGap = errors.New("frames are missing")

func check(last, next Header, started bool) error {
	switch {
	case !started && !next.Snapshot:
		return fmt.Errorf("%w: the stream began without a snapshot", ErrGap)
	case !started:
		return nil
	case next.Epoch != last.Epoch:
		return fmt.Errorf("%w: epoch changed from %d to %d", ErrGap, last.Epoch, next.Epoch)
	case next.Revision != last.Revision+1:
		return fmt.Errorf("%w: revision %d follows %d", ErrGap, next.Revision, last.Revision)
	default:
		return nil
	}
}
