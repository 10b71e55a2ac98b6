package disk

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"
)

// ErrAway says that whoever knows what a filesystem counts does not answer.
var ErrAway = errors.New("nobody answers who knows what the filesystem counts")

// CountSource says what the filesystem of a volume counts in it; the error is ErrAway when
// nobody does. It must respect ctx.
type CountSource func(ctx context.Context, v Volume) (Tree, error)

const (
	// countWithin bounds a question. It takes a call or two: most of its time is for a podsync
	// that is just being started.
	countWithin = 250 * time.Millisecond
	// countPeriod is how often one is asked, as it costs next to nothing.
	countPeriod = 10 * time.Second
	// awayFor is how long nobody is asked after there was no answer.
	awayFor = time.Second
)

// periodOf is after how long what was measured is measured again.
func (c TreesConfig) periodOf(m *Measured) time.Duration {
	if m.Counted {
		return min(c.Period, countPeriod)
	}
	return c.Period
}

// counted measures a directory by what its filesystem counts; not done: it has to be walked.
// While podsync is away, as for a restart, the last figure stays once, and the directory is
// late; a walk would lack what only the filesystem knows. Then it is walked: what is written
// meanwhile is to be seen.
func (t *Trees) counted(ctx context.Context, dir Directory) (m Measured, done bool, err error) {
	if dir.Counted == (Volume{}) || t.cfg.Count == nil {
		return Measured{}, false, nil
	}
	m.Time = time.Now()
	if m.Tree, err = t.askCount(ctx, dir.Counted); err == nil {
		m.Counted = true
		m.Filesystem, err = Statfs(dir.Path)
		t.answered(dir.Path)
		return m, true, err
	}
	if ctx.Err() != nil {
		return Measured{}, true, err
	}
	keeps, news := t.unanswered(dir.Path, err)
	if keeps {
		return Measured{Tree: Tree{Deeper: true}}, true, err
	}
	if news {
		klog.FromContext(ctx).V(2).Info("Directory is walked, what its filesystem counts is not known", "directory", dir.Path, "err", err)
	}
	return Measured{}, false, nil
}

// askCount asks about one volume.
func (t *Trees) askCount(ctx context.Context, v Volume) (Tree, error) {
	t.mu.Lock()
	away := time.Now().Before(t.away)
	t.mu.Unlock()
	if away {
		return Tree{}, ErrAway
	}
	limited, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	tree, err := t.cfg.Count(limited, v)
	if errors.Is(err, ErrAway) && ctx.Err() == nil {
		t.mu.Lock()
		t.away = time.Now().Add(awayFor)
		t.mu.Unlock()
	}
	return tree, err
}

// answered says that what is counted in a directory was said.
func (t *Trees) answered(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[path]; e != nil {
		e.missed, e.uncounted = false, false
	}
}

// unanswered says whether a directory's last figure stays though it is not known anew, and
// whether it is news that it does not.
func (t *Trees) unanswered(path string, err error) (keeps, news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[path]
	if e == nil {
		return false, false
	}
	if errors.Is(err, ErrAway) && !e.missed && e.valid && e.last.Counted && time.Since(e.last.Time) < lapse {
		e.missed = true
		return true, false
	}
	news = !e.uncounted
	e.uncounted = true
	return false, news
}
