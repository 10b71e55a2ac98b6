package disk

import (
	"context"
	"errors"
	"path/filepath"
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
	// OwnMount: it is measured like any other where the mount is missing, for what is used
	// of the filesystem below is not the pod's, and more than any limit of its own.
	OwnMount bool
	// Namespace is whose it is; "" is the node's.
	Namespace string
	// Flat counts the files in the directory, neither itself nor what is in
	// directories below it. A path that is a file counts as that file.
	Flat bool
	// Counted is the volume that it is, where the filesystem counts what is in it: that is
	// asked for, and walked where nobody says it. The zero value is none.
	Counted Volume
}

// Measured is a directory, the filesystem that it is on, and when it was measured.
type Measured struct {
	// Tree is what the directory takes; with FilesystemOnly what is taken of
	// the filesystem.
	Tree
	// Filesystem is the one that it is on.
	Filesystem Filesystem
	// Time is when it began to be measured.
	Time time.Time
	// Partly: a walk takes long, and the last that has counted all, if any has, is older
	// than three periods. It has, or had lately, at least what one walk has counted.
	Partly bool
	// Slow: a walk takes longer than the deadline, so that it is of another age than others.
	Slow bool
	// Counted: it is what the filesystem counts, and a walk has come to the same, with files
	// that have no name and are held open. Unnamed is what of it is in such.
	Counted bool
	Unnamed Tree
}

// Measure measures a directory now. soFar is told meanwhile what was counted; with an
// error, that is returned.
func Measure(ctx context.Context, d Directory, soFar func(Measured)) (Measured, error) {
	filesystem, err := Statfs(d.Path)
	if err != nil {
		return Measured{}, err
	}
	out := Measured{Filesystem: filesystem, Time: time.Now()}
	if d.FilesystemOnly && (!d.OwnMount || Apart(d.Path, filepath.Dir(d.Path))) {
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
	// figure, or the last one where that is more and not older than an hour; and it is
	// walked to its end beside the others, see Trees. Of one that hangs in the kernel (a
	// dead network mount) nothing more is asked until it comes back, and the others go
	// on.
	Deadline time.Duration
	// Forget is how long a tree that nobody asks for is kept.
	Forget time.Duration
	// Measured is told how long each measurement took, of a directory that was walked without
	// its Counted; may be nil.
	Measured func(d Directory, took time.Duration)
	// Count is asked about directories that are counted; nil: they are walked.
	Count CountSource
	// Held is what a pod's containers have in files that have no name any more and that lie in a
	// volume of its, as far as is known; nil: it is not.
	Held func(ctx context.Context, v Volume) Tree
}

// brief is how long each tree may take that is renewed, until all of them were tried: who
// has a million of small files in one takes nobody else's time.
const brief = 500 * time.Millisecond

// Trees measures directories in the background, one at a time, and only those
// that somebody asks for. Those that take longer than the deadline are walked beside them,
// too, one at a time as well, for ten minutes at most and with a tenth of a processor: what
// was removed from them is noticed by that. Who makes pods decides how long theirs take, and how many
// there are: the next one is of the namespace whose have taken the least time; and of one
// that takes too long what was counted so far is known, so that nobody hides what he has
// behind a million of small files. Safe for concurrent use.
type Trees struct {
	cfg        TreesConfig
	measureOne func(context.Context, Directory, func(soFar Measured)) (Measured, error)
	wake       wake.Signal
	wakeLong   wake.Signal

	mu      sync.Mutex
	entries map[string]*tree
	// finished is closed, and made anew, when a tree was measured, well or not.
	finished chan struct{}
	turns    turns
	longs    turns
	// away is until when nobody asks for what is counted: there was no answer.
	away time.Time
	// cut ends the measurement under way, which goes on later; nil: there is none that
	// may be ended.
	cut context.CancelFunc
	// pressed: one that is pressing has its turn yet.
	pressed bool
}

// tree is one entry.
type tree struct {
	last  Measured
	valid bool
	// soFar is what the measurement under way has counted, longSoFar what the long one has.
	soFar, longSoFar Measured
	// queued is whether it has a turn, urgent whether it has one before all others; since
	// and urged are when it was given them.
	queued, urgent bool
	// waiting: its urgent turn has not begun.
	waiting      bool
	since, urged time.Time
	next         time.Time
	asked        time.Time
	// began is when the last walk did; partly: that was cut short, or there is more than it
	// counts.
	began  time.Time
	partly bool
	// whole is when the last walk or count began that has all; zero: none has. walked is when the
	// last walk began that had time for all that there is.
	whole, walked time.Time
	// tooLong: it takes longer than the deadline. longQueued is whether it has a turn to be
	// walked for as long as it takes, longNext when it may have one again.
	tooLong, longQueued bool
	longNext            time.Time
	// missed: its last question for what is counted had no answer; uncounted: it is walked
	// therefore.
	missed, uncounted bool
	// proof is what the last walk of a directory that is counted came to, with files that have no
	// name, named what it has found itself, and proved when; zero: there was none. disproved is
	// since when a walk has to have begun for that.
	proof     Tree
	named     Tree
	proved    time.Time
	disproved time.Time
	// first is closed when the first walk ended, well or not.
	first chan struct{}
	tried bool
}

// NewTrees returns Trees that measure nothing until Run runs.
func NewTrees(cfg TreesConfig) *Trees {
	return &Trees{
		cfg: cfg, measureOne: Measure, wake: wake.New(), wakeLong: wake.New(), entries: map[string]*tree{},
		finished: make(chan struct{}), turns: newTurns(), longs: newTurns(),
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
			if m, known := e.most(t.cfg.Period); known {
				out[dir.Path] = m
			}
		}
	}
	return out
}

// Renew is Get, but has all trees measured that were not since a time, each for a short
// while before any goes on for longer, and waits for that until ctx is done. late are those
// of which not all was counted since then: there may be more than is said. It is of what has
// been walked alone: of what a filesystem counts nothing is in it that has no name. The measurement
// under way is ended for them only if they are pressing: who asks again and again has nobody else's
// ended.
func (t *Trees) Renew(ctx context.Context, dirs []Directory, since time.Time, pressing bool) (have map[string]Measured, late map[string]bool) {
	for {
		finished, late := t.renew(dirs, since, pressing)
		if finished == nil {
			return walkedSince(t.have(dirs), late), late
		}
		select {
		case <-finished:
			continue
		case <-ctx.Done():
			return walkedSince(t.have(dirs), late), late
		}
	}
}

// renew has those trees measured that were not since a time; finished is closed when
// another was, and nil when none is waited for.
func (t *Trees) renew(dirs []Directory, since time.Time, pressing bool) (finished chan struct{}, late map[string]bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	late = map[string]bool{}
	for _, dir := range dirs {
		e := t.entryLocked(dir.Path)
		e.asked = now
		t.longLocked(e, dir)
		if !e.walked.Before(since) {
			continue
		}
		late[dir.Path] = true
		if !e.began.Before(since) { // It was tried, and has more than it says.
			continue
		}
		finished = t.finished
		if !e.urgent && e.urged.Before(since) {
			e.urgent, e.waiting, e.urged = true, true, now
			t.turns.push(dir, true)
		}
		if pressing && e.waiting {
			t.pressed = true
			if t.cut != nil {
				t.cut()
			}
		}
	}
	t.wake.Set()
	return finished, late
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
			t.pushLocked(e, dir)
		}
		t.longLocked(e, dir)
		if !e.tried {
			pending = append(pending, e.first)
		}
	}
	t.wake.Set()
	return pending
}

// Run measures until ctx is done.
func (t *Trees) Run(ctx context.Context) error {
	var longs sync.WaitGroup
	longs.Go(func() { t.runLong(ctx) })
	defer longs.Wait()
	for {
		dir, first, ok := t.pop()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-t.wake:
				continue
			}
		}
		if first {
			t.measure(ctx, dir, urgent)
		} else {
			t.measure(ctx, dir, background)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// pushLocked gives a tree a turn.
func (t *Trees) pushLocked(e *tree, dir Directory) {
	e.queued, e.since = true, time.Now()
	t.turns.push(dir, false)
}

// pop is the next one. Who was measured before its turn came needs none.
func (t *Trees) pop() (dir Directory, urgent, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if dir, urgent, ok = t.turns.pop(t.pressed); !ok {
			t.forgetLocked()
		}
		t.pressed = t.pressed && urgent
		if !ok {
			return dir, urgent, ok
		}
		e := t.entries[dir.Path]
		if urgent && e != nil {
			e.waiting = false
		}
		if urgent || e == nil || e.partly || !e.began.After(e.since) {
			return dir, urgent, ok
		}
		e.queued = false
	}
}

// charge counts what a namespace's directory has taken.
func (t *Trees) charge(whose string, k kind, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k == long {
		t.longs.spent[whose] += took
		return
	}
	t.turns.spent[whose] += took
}

// cutBy says who ends the measurement under way for one that cannot wait, which may have
// come since its turn began; nil: nobody may.
func (t *Trees) cutBy(cut context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut = cut
	if cut != nil && t.pressed {
		cut()
	}
}

// forgetLocked drops what nobody asked for lately.
func (t *Trees) forgetLocked() {
	limit := time.Now().Add(-t.cfg.Forget)
	for dir, e := range t.entries {
		if e.asked.Before(limit) && e.tried && !e.queued && !e.urgent && !e.longQueued {
			delete(t.entries, dir)
		}
	}
}

// measure measures one directory and waits for it, but not longer than twice
// the time that it may take.
func (t *Trees) measure(ctx context.Context, dir Directory, k kind) {
	began, limit := time.Now(), t.cfg.Deadline
	defer func() { t.charge(dir.Namespace, k, time.Since(began)) }()
	switch k {
	case urgent:
		limit = min(limit, brief)
	case long:
		limit = longest
	}
	measureCtx, cancel := context.WithTimeout(ctx, limit)
	if k == background {
		t.cutBy(cancel)
		defer t.cutBy(nil)
	}
	done := make(chan struct{})
	go func() {
		defer cancel()
		defer close(done)
		start := time.Now()
		result, h, err := t.walk(measureCtx, dir, k)
		if t.cfg.Measured != nil {
			of := dir
			if h != asked {
				of.Counted = Volume{}
			}
			t.cfg.Measured(of, time.Since(start))
		}
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Directory was not measured", "directory", dir.Path, "after", time.Since(start).String(), "err", err)
		}
		t.finish(dir, k, result, start, ending{err, measureCtx.Err(), h})
	}()
	select {
	case <-done:
		return
	case <-measureCtx.Done():
	}
	if errors.Is(measureCtx.Err(), context.Canceled) {
		limit = min(limit, brief) // Somebody waits.
	}
	hung := time.NewTimer(min(limit, t.cfg.Deadline))
	defer hung.Stop()
	select {
	case <-done:
	case <-hung.C:
		klog.FromContext(ctx).Info("Directory cannot be measured, its filesystem does not answer; look at the mount", "directory", dir.Path)
	}
}

// count takes in what was counted of a directory so far.
func (t *Trees) count(dir Directory, k kind, soFar Measured) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := t.entries[dir.Path]; {
	case e == nil:
	case k == long:
		e.longSoFar = soFar
	default:
		e.soFar = soFar
	}
}

// ending is how a measurement ended: err says that not all was counted, and short, where
// that is because there was no time, why.
type ending struct {
	err, short error
	how        how
}

func (t *Trees) finish(dir Directory, k kind, result Measured, began time.Time, end ending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[dir.Path]
	if e == nil {
		return
	}
	short := end.err != nil && end.short != nil
	goesOn := short && (k == urgent || errors.Is(end.short, context.Canceled))
	e.over(k, began, t.cfg.periodOf(end.how))
	if k != urgent && !goesOn {
		e.tooLong = short || k == long && time.Since(began) >= t.cfg.Deadline
	}
	if goesOn && k != long && !e.queued { // It goes on when all others had their turn.
		t.pushLocked(e, dir)
	} else if !goesOn && end.how != asked && !began.Before(e.began) {
		e.began, e.partly = began, short || result.Deeper
	}
	if !short && !result.Deeper && end.how != asked && began.After(e.walked) {
		e.walked = began
	}
	e.take(result, began, end.err == nil && !result.Deeper, !goesOn)
	t.longLocked(e, dir)
	close(t.finished)
	t.finished = make(chan struct{})
	if !e.tried {
		e.tried = true
		close(e.first)
	}
}

// over notes that a measurement has ended. A tree that takes long is measured less often: at
// most a tenth of the time. A long walk rests itself.
func (e *tree) over(k kind, began time.Time, period time.Duration) {
	took := time.Since(began)
	if k == long {
		e.longQueued, e.longSoFar = false, Measured{}
		e.longNext = time.Now().Add(max(period, took))
		return
	}
	e.soFar = Measured{}
	e.next = time.Now().Add(max(period, 10*took))
	if k == urgent {
		e.urgent = false
	} else {
		e.queued = false
	}
}
