// Package timeline keeps what happened to each pod, for people: what was done,
// how long it took and what came of it. It is bounded in entries and bytes per
// pod and in pods; it costs nothing while nothing happens. It must never decide
// anything, and never make whoever writes wait for a reader.
package timeline

import (
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/reason"
)

// Bounds of one line.
const (
	mostEntries = 64
	mostBytes   = 16 << 10
	// mostOpen bounds the steps that are going on.
	mostOpen = 64
	// longText bounds an error or a detail, longName an object.
	longText = 1 << 10
	longName = 256
	// entryBytes is what an entry costs beside its text.
	entryBytes = 160
	// merged is how many of the newest entries are looked through for an equal one.
	merged = 8
	// quick is how long a step within an action takes at least to be worth an
	// entry when it went well.
	quick = 50 * time.Millisecond
)

// Names that others look for.
const (
	// PreStop and PostStart are steps that run a container's hook.
	PreStop   = "preStop hook"
	PostStart = "postStart hook"
	// Volume is the step that sets one volume up.
	Volume = "set up volume"
	// Unmount is the step that takes one volume down, and UnmountAgain what waits after it
	// has failed; its detail says how.
	Unmount      = "unmount volume"
	UnmountAgain = "wait to unmount the volume again"
	// Place is the step that waits for a place among the parallel starts or stops.
	Place = "wait for a place"
	// PullTurn is the step that waits until an image's pull may begin; its detail says
	// for what.
	PullTurn = "wait for the pull's turn"
	// ProbeAttempt is a failed attempt of a probe of a container.
	ProbeAttempt = "probe attempt failed"
)

// Entry is one thing that happened.
type Entry struct {
	// At is when it began; of a repeated one, when it began last.
	At time.Time
	// First is when it began first; zero unless Count is more than one.
	First time.Time
	// Count is how often the same happened, at least 1.
	Count int
	// What, e.g. "pull image".
	What string
	// Object is a container, volume, image or CRI id; may be empty.
	Object string
	// Took is how long the last one took; zero while it runs, or when it has
	// no length.
	Took time.Duration
	// Running is true while it goes on.
	Running bool
	// Error text; empty when it went well.
	Error string
	// Detail says more; may be empty.
	Detail string
}

// same says whether the same happened. What a runtime says of a failure names what it
// could not make, a sandbox or a probe's exec session, which is another one each time.
func (e *Entry) same(o *Entry) bool {
	return e.What == o.What && e.Object == o.Object && reason.Alike(e.Error, o.Error) && reason.Alike(e.Detail, o.Detail)
}

func (e *Entry) bytes() int {
	return entryBytes + len(e.What) + len(e.Object) + len(e.Error) + len(e.Detail)
}

// Line is the timeline of one pod. Safe for concurrent use.
type Line struct {
	uid    types.UID
	tracer Tracer // nil for none

	mu              sync.Mutex
	namespace, name string
	gone            time.Time
	entries         []Entry // oldest first
	bytes           int
	dropped         int
	open            []*Step
}

// Record is a copy of a line.
type Record struct {
	Namespace, Name string
	// Gone is when nothing of the pod was left; zero while something is.
	Gone time.Time
	// Entries by when they began, oldest first.
	Entries []Entry
	// Running are the steps that go on, with the action that each belongs to.
	Running []Running
	// Dropped counts entries that are not kept any more.
	Dropped int
}

// Running is a step that goes on within an action.
type Running struct {
	// Action and ActionObject name the action.
	Action, ActionObject string
	What, Object, Detail string
	Since                time.Time
}

// Named says whose line it is.
func (l *Line) Named(namespace, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.namespace, l.name = namespace, name
}

// Note adds something that has no length. A zero At is now.
func (l *Line) Note(e Entry) {
	if e.At.IsZero() {
		e.At = time.Now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(e)
}

// addLocked puts an entry at the end; one that is equal to a recent one takes its place
// and counts.
func (l *Line) addLocked(e Entry) {
	e.Object, e.Error, e.Detail = shorten(e.Object, longName), shorten(e.Error, longText), shorten(e.Detail, longText)
	e.Count = max(e.Count, 1)
	for i := len(l.entries) - 1; i >= max(0, len(l.entries)-merged); i-- {
		old := &l.entries[i]
		if !old.same(&e) {
			continue
		}
		e.Count += old.Count
		e.First = old.First
		if e.First.IsZero() {
			e.First = old.At
		}
		l.bytes -= old.bytes()
		l.entries = slices.Delete(l.entries, i, i+1)
		break
	}
	l.entries = append(l.entries, e)
	l.bytes += e.bytes()
	old := 0
	for len(l.entries)-old > mostEntries || l.bytes > mostBytes {
		l.bytes -= l.entries[old].bytes()
		old++
	}
	l.dropped += old
	l.entries = slices.Delete(l.entries, 0, old)
}

// Read returns a copy of the line.
func (l *Line) Read() Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Record{Namespace: l.namespace, Name: l.name, Gone: l.gone, Dropped: l.dropped}
	r.Entries = make([]Entry, 0, len(l.entries)+len(l.open))
	r.Entries = append(r.Entries, l.entries...)
	for _, s := range l.open {
		r.Entries = append(r.Entries, Entry{At: s.began, Count: 1, What: s.what, Object: s.object, Detail: s.detail, Running: true})
		if s.parent != nil {
			r.Running = append(r.Running, Running{
				Action: s.parent.what, ActionObject: s.parent.object, What: s.what, Object: s.object, Detail: s.detail, Since: s.began,
			})
		}
	}
	slices.SortStableFunc(r.Entries, func(a, b Entry) int { return a.At.Compare(b.At) })
	return r
}

// close keeps only what is worth keeping of a pod that is gone.
func (l *Line) close(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = now
	l.open = nil
	l.entries = slices.Clip(l.entries)
}

// reopen is for a UID that comes back.
func (l *Line) reopen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = time.Time{}
}

// shorten cuts text to at most n bytes at a rune's border, and puts a sign where it
// is no text, which cannot be sent. The result does not keep a longer text in memory.
func shorten(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= n {
		return text
	}
	const more = " …"
	cut := n - len(more)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return strings.Clone(text[:cut]) + more
}
