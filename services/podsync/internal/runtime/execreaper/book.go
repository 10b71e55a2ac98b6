// Package execreaper ends the commands of exec sessions whose client has left.
//
// The CRI has no call for that and does not tell a command's process, so it is
// found: by the container's cgroup, by where its parent is, by when it started
// and by what runs. Only what is certain is ended (see Judge); what may be the
// command of a session that goes on waits until that has ended.
//
// It owns what is known of sessions; it must never touch a process that did not
// come into a container from outside, or descends from such a one.
package execreaper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// How long is waited.
const (
	// moment is what a command has to end by itself: its input has ended.
	moment = time.Second
	// grace is between SIGHUP and SIGKILL.
	grace = 2 * time.Second
	// reconnectGrace is how long after a start clients may take to name the sessions
	// that they hold; nothing is judged before.
	reconnectGrace = 10 * time.Second
	// lateStart is how young a session must be at its end for its command to be
	// expected later still.
	lateStart = 30 * time.Second
)

// Host is what is asked of processes; Procfs has it.
type Host interface {
	// Containers returns the processes of containers, from one reading of all.
	Containers(ids []string) (map[string][]Process, error)
	// Commands sets the Argv of a container's processes. It may take for ever.
	Commands(all []Process)
	Level() int
	IgnoresHangup(pid int) bool
	Signal(id string, p Process, signal unix.Signal) (gone bool, err error)
}

// Deps are what a Book is given.
type Deps struct {
	// Host is Procfs{} when nil.
	Host Host
	// Metrics may be nil.
	Metrics prometheus.Registerer
	// Now is the time in ticks since the machine's start; the kernel's when nil.
	Now func() uint64
}

// Book knows the sessions of this moment. Safe for concurrent use.
type Book struct {
	deps  Deps
	count *prometheus.CounterVec
	// moment and grace are the constants; tests on real processes have no time.
	moment, grace time.Duration
	judge         func([]Session, []Root) []Ruling // Judge
	// since is closed when the clients have had the time to come back.
	since chan struct{}
	// stopped is closed when nothing may be ended any more.
	stopped chan struct{}

	mu   sync.Mutex
	held map[string]*container
	// next is the reading that has not begun; last is closed when the one before it
	// is over.
	next *reading
	last chan struct{}
	// ending are the processes that are being ended, by number.
	ending map[int]uint64
	// kept is how many processes all sessions remember.
	kept int
}

// Hold is one session, from before its command starts until it is over. Either
// End or Left and Settle must be called, once.
type Hold struct {
	book      *Book
	container string
	began     uint64
	// argv is the command, nil when it is too long to be looked at; program is what it
	// begins with, for people.
	argv    []string
	program string

	// Under book.mu. left: the client has left. watched: the end of this session
	// may make certain what another's command is. over: it has ended.
	left, watched, over bool
	// seen are the commands of exec in the container that may be this session's, with
	// what they had started, when the client left; certain are those that were this
	// session's: it may end before it is looked for. likely are those that were its as
	// far as the sessions were named by then: others may come back and be theirs.
	seen, certain, likely []Process
}

// New returns a Book. Nothing is ended before Run.
func New(deps Deps) *Book {
	if deps.Host == nil {
		deps.Host = Procfs{}
	}
	if deps.Now == nil {
		deps.Now = now
	}
	b := &Book{
		deps: deps, moment: moment, grace: grace, judge: Judge, since: make(chan struct{}), stopped: make(chan struct{}),
		held: map[string]*container{}, ending: map[int]uint64{},
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "polylet_exec_left_commands_total",
			Help: "Commands of exec sessions whose client left before they ended, by what became of them: ended (by themselves), hungup (on SIGHUP), killed, failed (could not be ended).",
		}, []string{"result"}),
	}
	for _, result := range []string{"ended", "hungup", "killed", "failed"} {
		b.count.WithLabelValues(result)
	}
	if deps.Metrics != nil {
		deps.Metrics.MustRegister(b.count)
	}
	return b
}

// Run lets commands be ended until ctx is done.
func (b *Book) Run(ctx context.Context) error {
	defer close(b.stopped)
	select {
	case <-time.After(reconnectGrace):
		close(b.since)
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}

// Begin notes a session whose command is not started before Begin returns. argv
// must not be changed any more.
func (b *Book) Begin(container string, argv []string) *Hold {
	return b.Resume(container, argv, b.deps.Now())
}

// Resume notes a session that was begun before, with another Book.
func (b *Book) Resume(id string, argv []string, began uint64) *Hold {
	h := &Hold{book: b, container: id, argv: known(argv), began: began}
	if len(argv) > 0 {
		h.program = strings.Clone(argv[0][:min(len(argv[0]), mostProgram)])
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.held[id]
	if c == nil {
		c = &container{changed: make(chan struct{})}
		b.held[id] = c
	}
	c.holds = append(c.holds, h)
	return h
}

// mostProgram is how much of a program's name is shown, in bytes.
const mostProgram = 256

// Began is when the session began, in ticks since the machine's start.
func (h *Hold) Began() uint64 { return h.began }

// Program is what the session's command begins with, for people.
func (h *Hold) Program() string { return h.program }

// End forgets a session whose command has ended.
func (h *Hold) End() {
	b := h.book
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.held[h.container]
	h.over = true
	c.kept -= len(h.seen)
	b.kept -= len(h.seen)
	c.holds = slices.DeleteFunc(c.holds, func(other *Hold) bool { return other == h })
	b.dropLocked(h.container)
	if h.watched {
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// ErrStopped is why a session is not Settled when podsync stops: the next one may.
var ErrStopped = errors.New("podsync is stopping")

// Left notes that the client has left, and what is in the container now: of a
// command that ends in the next moment, for its input does, what it has started
// is to end too. Settle must follow.
func (h *Hold) Left(ctx context.Context) {
	b := h.book
	b.mu.Lock()
	h.left = true
	b.mu.Unlock()
	l, err := h.ask(ctx, true)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The processes of a container could not be noted", "containerID", h.container)
		return
	}
	seen, claimed := l.since(h), l.claimed(h)
	b.mu.Lock()
	defer b.mu.Unlock()
	h.keep(seen)
	into := &h.certain
	select {
	case <-b.since:
	default:
		into = &h.likely // others may have sessions that are not named yet
	}
	for _, i := range claimed {
		if p := l.roots[i].Process; !l.rulings[i].Spared {
			p.Argv = known(p.Argv)
			*into = append(*into, p)
		}
	}
}

// Settle ends the command of a session that has been Left. It returns when
// nothing of it is left or to be expected, which may take as long as another
// session that the command may belong to, or with an error when that was not
// reached: ctx is done, podsync stops, the command cannot be ended.
func (h *Hold) Settle(ctx context.Context) error {
	b := h.book
	defer h.End()
	young := b.deps.Now()-h.began < uint64(lateStart/time.Second)*ticksPerSecond
	if err := b.wait(ctx, b.since, 0); err != nil {
		return err
	}
	for pause := b.moment; ; pause *= 2 {
		if err := b.wait(ctx, nil, pause); err != nil {
			return err
		}
		done, err := h.end(ctx)
		if done || err != nil {
			return err
		}
		if !young || b.deps.Now()-h.began > claimWithin {
			b.count.WithLabelValues("ended").Inc()
			return nil
		}
	}
}

// wait waits for a channel, or for a time when that is nil.
func (b *Book) wait(ctx context.Context, c <-chan struct{}, d time.Duration) error {
	var elapsed <-chan time.Time
	if c == nil {
		timer := time.NewTimer(d)
		defer timer.Stop()
		elapsed = timer.C
	}
	select {
	case <-c:
	case <-elapsed:
	case <-ctx.Done():
		return ctx.Err()
	case <-b.stopped:
		return ErrStopped
	}
	select {
	case <-b.stopped:
		return ErrStopped
	default:
		return nil
	}
}

// end ends what is certain to be left of the session, and waits while something
// may be. It says whether there was something to end.
func (h *Hold) end(ctx context.Context) (bool, error) {
	for {
		found, spared, changed, err := h.look(ctx)
		switch {
		case err != nil:
			return false, err
		case len(found) > 0:
			return true, h.hangUp(ctx, found)
		case !spared:
			return false, nil
		}
		if err := h.book.wait(ctx, changed, 0); err != nil {
			return false, err
		}
	}
}

// look finds the session's processes: found are marked as being ended, spared
// says that there are others that may be another session's; it is worth to look
// again when changed is closed.
func (h *Hold) look(ctx context.Context) (found []Process, spared bool, changed <-chan struct{}, err error) {
	b := h.book
	l, err := h.ask(ctx, true)
	if err != nil {
		return nil, false, nil, err
	}
	claimed := l.claimed(h)
	b.mu.Lock()
	defer b.mu.Unlock()
	var newest uint64
	for _, i := range claimed {
		switch p := l.roots[i].Process; {
		case l.taken[i] || b.ends(p):
		case l.rulings[i].Spared:
			spared, newest = true, max(newest, p.Start)
		default:
			p.Argv = nil
			found = append(found, p)
			l.taken[i] = true
			b.ending[p.PID] = p.Start
		}
	}
	if !spared {
		return found, false, nil, nil
	}
	for _, other := range l.holds {
		if other == h || other.began > newest {
			continue
		}
		if other.watched = true; other.over {
			return found, true, ended, nil // it ended while it was judged
		}
	}
	return found, true, b.held[h.container].changed, nil
}

// ended is closed.
var ended = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
