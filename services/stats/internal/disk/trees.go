package disk

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/wake"
)

// Directory is one to measure.
type Directory struct {
	// Path is where it is.
	Path string
	// FilesystemOnly asks for statfs alone: the directory is a mount of its own.
	FilesystemOnly bool
	// Namespace is whose it is; "" is the node's.
	Namespace string
	// Flat counts the files in the directory, neither itself nor what is in
	// directories below it. A path that is a file counts as that file.
	Flat bool
}

// Measured is a directory, the filesystem that it is on, and when it was measured.
type Measured struct {
	// Tree is what the directory takes; with FilesystemOnly what is taken of
	// the filesystem.
	Tree
	// Filesystem is the one that it is on.
	Filesystem Filesystem
	// Time is when it was measured.
	Time time.Time
}

// Measure measures a directory now. soFar is told meanwhile what was counted; with an
// error, that is returned.
func Measure(ctx context.Context, d Directory, soFar func(Measured)) (Measured, error) {
	filesystem, err := Statfs(d.Path)
	if err != nil {
		return Measured{}, err
	}
	out := Measured{Filesystem: filesystem, Time: time.Now()}
	if d.FilesystemOnly {
		out.Tree = Tree{Bytes: filesystem.Used(), Inodes: filesystem.InodesUsed()}
		return out, nil
	}
	if d.Flat {
		out.Tree, err = Files(d.Path)
	} else {
		out.Tree, err = Walk(ctx, d.Path, func(t Tree) {
			soFar(Measured{Tree: t, Filesystem: out.Filesystem, Time: out.Time})
		})
	}
	return out, err
}

// TreesConfig says how often trees are measured.
type TreesConfig struct {
	// Period is how old a measurement may be before it is renewed, when asked for.
	Period time.Duration
	// Deadline bounds one walk; of a longer one what was counted until then is the
	// figure, or the last one where that is more. Of one that hangs in the kernel (a
	// dead network mount) nothing more is asked until it comes back, and the others go
	// on.
	Deadline time.Duration
	// Forget is how long a tree that nobody asks for is kept.
	Forget time.Duration
	// Measured is told how long each measurement took; may be nil.
	Measured func(d Directory, took time.Duration)
}

// Trees measures directories in the background, one at a time, and only those
// that somebody asks for. Who makes pods decides how long theirs take, and how many
// there are: the next one is of the namespace whose have taken the least time; and of one
// that takes too long what was counted so far is known, so that nobody hides what he has
// behind a million of small files. Safe for concurrent use.
type Trees struct {
	cfg        TreesConfig
	measureOne func(context.Context, Directory, func(soFar Measured)) (Measured, error)
	wake       wake.Signal

	mu      sync.Mutex
	entries map[string]*tree
	// finished is closed, and made anew, when a tree was measured, well or not.
	finished chan struct{}
	// queues are by namespace, none is empty; spent is the time that its directories
	// have taken, and least what the one that came last had: who comes again has no
	// claim on what it has not used.
	queues map[string][]Directory
	spent  map[string]time.Duration
	least  time.Duration
}

// tree is one entry.
type tree struct {
	last  Measured
	valid bool
	// soFar is what the measurement under way has counted.
	soFar  Measured
	queued bool
	next   time.Time
	asked  time.Time
	// began is when the last measurement did.
	began time.Time
	// first is closed when the first walk ended, well or not.
	first chan struct{}
	tried bool
}

// NewTrees returns Trees that measure nothing until Run runs.
func NewTrees(cfg TreesConfig) *Trees {
	return &Trees{
		cfg: cfg, measureOne: Measure, wake: wake.New(), entries: map[string]*tree{},
		finished: make(chan struct{}), queues: map[string][]Directory{}, spent: map[string]time.Duration{},
	}
}

// Get returns the last measurements of the trees, those that there are, and
// has the ones that are missing or old measured. It waits until every tree was
// tried once or ctx is done, whichever is first.
func (t *Trees) Get(ctx context.Context, dirs []Directory) map[string]Measured {
	pending := t.ask(dirs)
	for _, first := range pending {
		select {
		case <-first:
			continue
		case <-ctx.Done():
		}
		break
	}
	return t.have(dirs)
}

// have are the last measurements that there are.
func (t *Trees) have(dirs []Directory) map[string]Measured {
	out := make(map[string]Measured, len(dirs))
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, dir := range dirs {
		if e := t.entries[dir.Path]; e != nil {
			if m, known := e.most(); known {
				out[dir.Path] = m
			}
		}
	}
	return out
}

// Renew is Get, but has all trees measured now, whenever they were before, and waits
// for that until ctx is done.
func (t *Trees) Renew(ctx context.Context, dirs []Directory) map[string]Measured {
	for since := time.Now(); ; {
		finished, all := t.renew(dirs, since)
		if all {
			break
		}
		select {
		case <-finished:
			continue
		case <-ctx.Done():
		}
		break
	}
	return t.have(dirs)
}

// renew has those trees measured that were not since a time; all: all were.
func (t *Trees) renew(dirs []Directory, since time.Time) (finished chan struct{}, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all = true
	for _, dir := range dirs {
		e := t.entryLocked(dir.Path)
		if !e.began.Before(since) {
			continue
		}
		all, e.asked = false, since
		if !e.queued {
			e.queued = true
			t.pushLocked(dir)
		}
	}
	t.wake.Set()
	return t.finished, all
}

// entryLocked is that of a path.
func (t *Trees) entryLocked(path string) *tree {
	e := t.entries[path]
	if e == nil {
		e = &tree{first: make(chan struct{})}
		t.entries[path] = e
	}
	return e
}

func (t *Trees) ask(dirs []Directory) (pending []chan struct{}) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, dir := range dirs {
		e := t.entryLocked(dir.Path)
		e.asked = now
		if !e.queued && !now.Before(e.next) {
			e.queued = true
			t.pushLocked(dir)
		}
		if !e.tried {
			pending = append(pending, e.first)
		}
	}
	t.wake.Set()
	return pending
}

// Run measures until ctx is done.
func (t *Trees) Run(ctx context.Context) error {
	for {
		dir, ok := t.pop()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-t.wake:
				continue
			}
		}
		t.measure(ctx, dir)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// pushLocked puts a directory off until its turn.
func (t *Trees) pushLocked(dir Directory) {
	whose := dir.Namespace
	if len(t.queues[whose]) == 0 {
		t.spent[whose] = max(t.spent[whose], t.least)
	}
	t.queues[whose] = append(t.queues[whose], dir)
}

func (t *Trees) pop() (Directory, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queues) == 0 {
		clear(t.spent)
		t.least = 0
		t.forgetLocked()
		return Directory{}, false
	}
	first := true
	var next string
	for whose := range t.queues {
		if spent := t.spent[whose]; first || spent < t.spent[next] || spent == t.spent[next] && whose < next {
			first, next = false, whose
		}
	}
	t.least = t.spent[next]
	queue := t.queues[next]
	if t.queues[next] = queue[1:]; len(queue) == 1 {
		delete(t.queues, next)
	}
	return queue[0], true
}

// charge counts what a namespace's directory has taken.
func (t *Trees) charge(whose string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spent[whose] += took
}

// forgetLocked drops what nobody asked for lately.
func (t *Trees) forgetLocked() {
	limit := time.Now().Add(-t.cfg.Forget)
	for dir, e := range t.entries {
		if e.asked.Before(limit) && e.tried {
			delete(t.entries, dir)
		}
	}
}

// measure measures one directory and waits for it, but not longer than twice
// the deadline.
func (t *Trees) measure(ctx context.Context, dir Directory) {
	began := time.Now()
	defer func() { t.charge(dir.Namespace, time.Since(began)) }()
	measureCtx, cancel := context.WithTimeout(ctx, t.cfg.Deadline)
	done := make(chan struct{})
	go func() {
		defer cancel()
		defer close(done)
		start := time.Now()
		result, err := t.measureOne(measureCtx, dir, func(soFar Measured) { t.count(dir, soFar) })
		if t.cfg.Measured != nil {
			t.cfg.Measured(dir, time.Since(start))
		}
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Directory was not measured", "directory", dir.Path, "after", time.Since(start).String(), "err", err)
		}
		t.finish(dir, result, start, err)
	}()
	hung := time.NewTimer(2 * t.cfg.Deadline)
	defer hung.Stop()
	select {
	case <-done:
	case <-hung.C:
		klog.FromContext(ctx).Info("Directory cannot be measured, its filesystem does not answer; look at the mount", "directory", dir.Path)
	}
}

// count takes in what was counted of a directory so far.
func (t *Trees) count(dir Directory, soFar Measured) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[dir.Path]; e != nil {
		e.soFar = soFar
	}
}

// most is the last measurement, or what the one under way has counted where that is more.
func (e *tree) most() (m Measured, known bool) {
	m, known = e.last, e.valid
	if e.soFar.Tree == (Tree{}) || known && e.soFar.Bytes <= m.Bytes && e.soFar.Inodes <= m.Inodes {
		return m, known
	}
	bytes, inodes := max(m.Bytes, e.soFar.Bytes), max(m.Inodes, e.soFar.Inodes)
	m = e.soFar
	m.Bytes, m.Inodes = bytes, inodes
	return m, true
}

func (t *Trees) finish(dir Directory, result Measured, began time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[dir.Path]
	if e == nil {
		return
	}
	e.queued, e.began, e.soFar = false, began, result
	close(t.finished)
	t.finished = make(chan struct{})
	// A tree that takes long is measured less often: at most a tenth of the time.
	e.next = time.Now().Add(max(t.cfg.Period, 10*time.Since(began)))
	if err == nil {
		e.last, e.valid = result, true
	} else {
		e.last, e.valid = e.most()
	}
	e.soFar = Measured{}
	if !e.tried {
		e.tried = true
		close(e.first)
	}
}
