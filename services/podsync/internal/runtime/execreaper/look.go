package execreaper

import (
	"context"
	"slices"
)

// look is one look at a container's processes, for all who asked before it began.
// What is in it is set when done is closed, and is not changed any more but taken.
type look struct {
	id   string
	at   *container
	done chan struct{}
	// judging says that somebody asked whose the processes are; under Book.mu until
	// the look begins.
	judging bool

	err error
	all []Process
	// holds are the container's sessions once the processes had been read, so that
	// of each process seen the session had begun; roots are what is judged.
	holds   []*Hold
	roots   []judged
	rulings []Ruling
	// taken are the roots that somebody ends; under Book.mu.
	taken []bool
}

// judged is a process whose session is asked for.
type judged struct {
	Process
	// of is whose command it was for certain before it ended; nil of one that is there.
	of *Hold
}

// container is one with sessions; under Book.mu.
type container struct {
	holds []*Hold
	// changed is closed, and made anew, when a session that was watched has ended.
	changed chan struct{}
	// next is the look that has not begun; last is closed when the one before it is over.
	next *look
	last chan struct{}
	// looks are under way, or wait for the one before.
	looks int
	// kept is how many processes the sessions remember.
	kept int
}

// dropLocked forgets a container without sessions, once nobody looks at it: a look
// that hangs keeps another from being begun.
func (b *Book) dropLocked(id string) {
	if c := b.held[id]; len(c.holds) == 0 && c.looks == 0 {
		delete(b.held, id)
	}
}

// ask returns a look at h's container that began after it was asked for. Who does
// not wait for it any more leaves it to the others.
func (h *Hold) ask(ctx context.Context, judging bool) (*look, error) {
	b := h.book
	b.mu.Lock()
	c := b.held[h.container]
	l := c.next
	if l == nil {
		l = &look{id: h.container, at: c, done: make(chan struct{})}
		go b.take(l, c.last)
		c.next, c.last = l, l.done
		c.looks++
	}
	l.judging = l.judging || judging
	b.mu.Unlock()
	select {
	case <-l.done:
		return l, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-b.stopped:
		return nil, ErrStopped
	}
}

// take looks once the container's last look is over. What is read of one container
// only, and to judge, hold nobody up but who asked about that.
func (b *Book) take(l *look, last <-chan struct{}) {
	defer close(l.done)
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		l.at.looks--
		b.dropLocked(l.id)
	}()
	if last != nil {
		<-last
	}
	if l.all, l.err = b.read(l); l.err != nil || !l.judging {
		return
	}
	b.deps.Host.Commands(l.all)
	sessions := b.snapshot(l)
	commands := make([]Root, len(l.roots))
	for i, r := range l.roots {
		commands[i] = Root{Start: r.Start, Argv: known(r.Argv)}
	}
	l.rulings, l.taken = b.judge(sessions, commands), make([]bool, len(commands))
}

// snapshot notes the container's sessions and what is to be judged.
func (b *Book) snapshot(l *look) []Session {
	candidates := roots(l.all, b.deps.Host.Level())
	there := make(map[int]uint64, len(l.all))
	for _, p := range l.all {
		there[p.PID] = p.Start
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range candidates {
		if !b.ends(p) {
			l.roots = append(l.roots, judged{p, nil})
		}
	}
	l.holds = slices.Clone(l.at.holds)
	sessions := make([]Session, len(l.holds))
	gone := func(p Process) bool {
		start, ok := there[p.PID]
		return (!ok || start != p.Start) && !b.ends(p)
	}
	for i, h := range l.holds {
		sessions[i] = Session{Began: h.began, Argv: h.argv, Left: h.left}
		for _, p := range h.certain {
			if gone(p) {
				l.roots = append(l.roots, judged{p, h})
			}
		}
	}
	for _, h := range l.holds {
		for _, p := range h.likely {
			if gone(p) && !slices.ContainsFunc(l.roots, func(r judged) bool { return r.same(p) }) {
				l.roots = append(l.roots, judged{p, nil})
			}
		}
	}
	return sessions
}

// ends says whether a process is being ended; under b.mu.
func (b *Book) ends(p Process) bool {
	start, ok := b.ending[p.PID]
	return ok && start == p.Start
}

// claimed are the indexes of the roots that may be h's command, and were not
// another's for certain.
func (l *look) claimed(h *Hold) (out []int) {
	self := slices.Index(l.holds, h)
	for i, ruling := range l.rulings {
		if (l.roots[i].of == nil || l.roots[i].of == h) && slices.Contains(ruling.Claims, self) {
			out = append(out, i)
		}
	}
	return out
}

// How many processes are remembered of those that were there when clients left.
// Beyond it what a command has started is found only as long as the command is there.
const (
	mostKept      = 64 << 10
	mostKeptOfOne = 8 << 10 // container
)

// since returns the commands of exec that began with h or later, with what they have
// started.
func (l *look) since(h *Hold) []Process {
	var began []Process
	for _, p := range roots(l.all, h.book.deps.Host.Level()) {
		if p.Start >= h.began {
			began = append(began, p)
		}
	}
	out := slices.Clone(family(l.all, began))
	for i := range out {
		out[i].Argv = nil
	}
	return out
}

// keep remembers what was there when the client left; under b.mu.
func (h *Hold) keep(seen []Process) {
	b := h.book
	c := b.held[h.container]
	if c.kept+len(seen) > mostKeptOfOne || b.kept+len(seen) > mostKept {
		return
	}
	c.kept += len(seen)
	b.kept += len(seen)
	h.seen = seen
}
