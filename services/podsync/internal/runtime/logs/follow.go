package logs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/polylet/polylet/internal/wake"
)

// recheck is how often a followed file is looked at when nothing was told: the
// net under lost notifications.
const recheck = time.Second

// follower reads a log as it grows, over rotations, until its container ends.
type follower struct {
	reader  *Reader
	req     Request
	file    *os.File
	decoder *decoder
}

func (t *follower) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	changed := wake.New()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		// Without notifications the recheck alone finds what is new.
		_ = t.reader.notifier.Notify(ctx, filepath.Dir(t.req.Path), func() {
			changed.Set()
		})
	}()
	defer func() { stop(); <-watching }()
	ended := t.req.Ended
	timer := time.NewTimer(recheck)
	defer timer.Stop()
	for {
		last := ended == nil || isClosed(ended)
		if err := t.drain(ctx); err != nil || last {
			return err
		}
		timer.Reset(recheck)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-ended:
		case <-timer.C:
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// drain reads to the end of the file, and on into the files that took its place.
func (t *follower) drain(ctx context.Context) error {
	for {
		if err := t.decoder.copy(ctx, t.file); err != nil {
			return err
		}
		next, err := t.rotated()
		if err != nil || next == nil {
			return err
		}
		// What was written between the last read and the rename.
		if err := t.decoder.copy(ctx, t.file); err != nil {
			_ = next.Close()
			return err
		}
		_ = t.file.Close()
		t.file = next
	}
}

// rotated opens the file that has taken the followed one's place; nil when
// none has.
func (t *follower) rotated() (*os.File, error) {
	next, err := t.reader.open(t.req.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // renamed, and not made anew yet
	}
	if err != nil {
		return nil, err
	}
	old, err1 := t.file.Stat()
	now, err2 := next.Stat()
	if err := errors.Join(err1, err2); err != nil || os.SameFile(old, now) {
		_ = next.Close()
		return nil, err
	}
	return next, nil
}
