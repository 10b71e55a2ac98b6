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
	// proofLasts is how long what is counted is believed after a walk has come to the same.
	proofLasts = 10 * time.Minute
)

// how is how a directory was measured.
type how int

const (
	walked how = iota
	// compared: it was walked, and what its filesystem counts was known, or is asked for soon.
	compared
	// asked: what its filesystem counts was asked for alone.
	asked
)

// periodOf is after how long a directory is measured again that was measured so. One that is
// counted is walked by then only if it has changed.
func (c TreesConfig) periodOf(h how) time.Duration {
	if h == walked {
		return c.Period
	}
	return min(c.Period, countPeriod)
}

// counted measures a directory by what its filesystem counts; not done: it has to be walked,
// which is to come to count, if that is known. What is counted is believed as far as a walk has
// come to the same, with files that are held open: others may have files of their own counted for
// it, and take from it what lies there. Who is urgent has it walked and no more, for a pod may be
// ended by it: what lost its name since the last walk, or was closed since others looked for such
// files, is to be in no figure.
// While podsync is away, as for a restart, the last figure stays once, and the directory is
// late. Then it is walked: what is written meanwhile is to be seen.
func (t *Trees) counted(ctx context.Context, dir Directory, k kind) (m Measured, count *Tree, done bool, err error) {
	if dir.Counted == (Volume{}) || t.cfg.Count == nil {
		return Measured{}, nil, false, nil
	}
	if k == urgent {
		t.disproves(dir.Path)
		return Measured{}, nil, false, nil
	}
	m.Time = time.Now()
	has, err := t.askCount(ctx, dir.Counted)
	if err == nil {
		if !t.believed(dir.Path, has, &m) {
			return Measured{}, &has, false, nil
		}
		m.Filesystem, err = Statfs(dir.Path)
		return m, &has, true, err
	}
	if ctx.Err() != nil {
		return Measured{}, nil, true, err
	}
	keeps, news := t.unanswered(dir.Path, err)
	if keeps {
		return Measured{Tree: Tree{Deeper: true}, Counted: true}, nil, true, err
	}
	if news {
		klog.FromContext(ctx).V(2).Info("Directory is walked, what its filesystem counts is not known", "directory", dir.Path, "err", err)
	}
	return Measured{}, nil, false, nil
}

// disproves has a directory walked the next time: a walk that is cut goes on in its turn, and is
// to be one there, too.
func (t *Trees) disproves(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[path]; e != nil {
		e.proved, e.disproved = time.Time{}, time.Now()
	}
}

// believed makes of a count the figure, if a walk has come to the same lately.
func (t *Trees) believed(path string, count Tree, m *Measured) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[path]
	if e == nil {
		return false
	}
	e.missed, e.uncounted = false, false
	return !e.proved.IsZero() && time.Since(e.proved) < proofLasts && e.agrees(count, m)
}

// agrees makes of a count the figure if it is near to the proof.
func (e *tree) agrees(count Tree, m *Measured) bool {
	figure, near := agreed(count, e.proof)
	if near {
		m.Tree, m.Counted = figure, true
		m.Unnamed = Tree{Bytes: figure.Bytes - min(figure.Bytes, e.named.Bytes), Inodes: figure.Inodes - min(figure.Inodes, e.named.Inodes)}
	}
	return near
}

// proves keeps what a walk has come to, with files that have no name any more and are held open,
// and makes it the figure of what is counted where both agree. Else it is the walk's alone: who
// may be charged with what else is counted is not known.
func (t *Trees) proves(ctx context.Context, dir Directory, k kind, count *Tree, m Measured) Measured {
	switch {
	case k == urgent:
		return m
	case count == nil:
		return t.standing(ctx, dir, m)
	case m.Deeper:
		return m
	}
	proof := m.Tree
	if _, near := agreed(*count, proof); !near && t.cfg.Held != nil {
		held := t.cfg.Held(ctx, dir.Counted)
		proof.Bytes, proof.Inodes = upTo(proof.Bytes, held.Bytes, count.Bytes), upTo(proof.Inodes, held.Inodes, count.Inodes)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[dir.Path]
	if e == nil || m.Time.Before(e.walked) || m.Time.Before(e.disproved) { // Another was faster.
		return m
	}
	e.proof, e.named, e.proved = proof, m.Tree, time.Now()
	if !e.agrees(*count, &m) {
		e.proved = time.Time{} // That a later count is like it says nothing.
	}
	return m
}

// standing adds to a walk what the last figure had in files without a name, as far as they are
// held yet: what is counted is not known, as podsync is away.
func (t *Trees) standing(ctx context.Context, dir Directory, m Measured) Measured {
	last, _ := t.Last(dir.Path)
	if dir.Counted == (Volume{}) || last.Unnamed == (Tree{}) || t.cfg.Held == nil {
		return m
	}
	held := t.cfg.Held(ctx, dir.Counted)
	m.Unnamed = Tree{Bytes: min(held.Bytes, last.Unnamed.Bytes), Inodes: min(held.Inodes, last.Unnamed.Inodes)}
	m.Bytes, m.Inodes = m.Bytes+m.Unnamed.Bytes, m.Inodes+m.Unnamed.Inodes
	return m
}

// upTo adds to what was walked what is held beside, as far as that was counted.
func upTo(walked, held, count uint64) uint64 { return walked + min(held, count-min(count, walked)) }

// agreed is what a count and a walk have both come to, and whether they are near each other.
func agreed(count, walked Tree) (Tree, bool) {
	near := func(a, b, slack uint64) bool { return max(a, b)-min(a, b) <= slack+b/64 }
	return Tree{Bytes: min(count.Bytes, walked.Bytes), Inodes: min(count.Inodes, walked.Inodes)},
		near(count.Bytes, walked.Bytes, 64<<10) && near(count.Inodes, walked.Inodes, 16)
}

// walkedSince are figures without what they have in files without a name. Those that are not late
// are of a time that was asked for.
func walkedSince(all map[string]Measured, late map[string]bool) map[string]Measured {
	for path, m := range all {
		m.Partly = m.Partly && late[path]
		m.Bytes, m.Inodes = m.Bytes-min(m.Bytes, m.Unnamed.Bytes), m.Inodes-min(m.Inodes, m.Unnamed.Inodes)
		m.Unnamed = Tree{}
		all[path] = m
	}
	return all
}

// Last is the last figure of a directory, as whoever asks for it has it; known: there is one.
func (t *Trees) Last(path string) (m Measured, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[path]
	if e == nil {
		return Measured{}, false
	}
	return e.most(t.cfg.Period)
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
