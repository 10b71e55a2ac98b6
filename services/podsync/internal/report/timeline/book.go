package timeline

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Bounds of a Book.
const (
	// mostGone is how many pods that are gone are kept, keepGone how long.
	mostGone = 100
	keepGone = 15 * time.Minute
)

// Book holds the lines of all pods. Safe for concurrent use.
type Book struct {
	// Tracer makes spans of all steps; nil for none. Set it before the first Open.
	Tracer Tracer

	mu    sync.Mutex
	lines map[types.UID]*Line
	// gone are the pods that are gone, in the order in which they went.
	gone  []gonePod
	timer *time.Timer // runs while gone is not empty
}

type gonePod struct {
	uid types.UID
	at  time.Time
}

// NewBook returns an empty Book.
func NewBook() *Book { return &Book{lines: map[types.UID]*Line{}} }

// Open returns the line of a pod that is there, a new one if need be.
func (b *Book) Open(uid types.UID) *Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.lines[uid]; l != nil {
		for i, g := range b.gone {
			if g.uid == uid {
				b.gone = append(b.gone[:i:i], b.gone[i+1:]...)
				l.reopen()
				break
			}
		}
		return l
	}
	l := &Line{uid: uid, tracer: b.Tracer}
	b.lines[uid] = l
	return l
}

// Note adds to the line of a pod that is known; nothing for others.
func (b *Book) Note(uid types.UID, e Entry) {
	b.mu.Lock()
	l := b.lines[uid]
	b.mu.Unlock()
	if l != nil {
		l.Note(e)
	}
}

// Trace opens a span of a pod that is known, for what is done for it outside of
// its actions; nil for other pods, or when nobody collects traces.
func (b *Book) Trace(uid types.UID, what, object string) Span {
	if b.Tracer == nil {
		return nil
	}
	b.mu.Lock()
	l := b.lines[uid]
	b.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.span(nil, what, object, "", time.Now())
}

// TraceStatus opens the span of a status that is written, and returns what ends it.
func (b *Book) TraceStatus(uid types.UID) (end func(error)) {
	span := b.Trace(uid, "write status", "")
	if span == nil {
		return func(error) {}
	}
	return func(err error) { span.End(time.Now(), err) }
}

// Close says that nothing of the pod is left; its line is kept for some time.
func (b *Book) Close(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lines[uid]
	if l == nil {
		return
	}
	now := time.Now()
	l.close(now)
	b.gone = append(b.gone, gonePod{uid, now})
	b.forgetLocked(now)
}

// forgetLocked drops the lines of pods that are gone for long, or too many.
func (b *Book) forgetLocked(now time.Time) {
	n := max(0, len(b.gone)-mostGone)
	for n < len(b.gone) && now.Sub(b.gone[n].at) >= keepGone {
		n++
	}
	for _, g := range b.gone[:n] {
		delete(b.lines, g.uid)
	}
	b.gone = append([]gonePod(nil), b.gone[n:]...)
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	if len(b.gone) > 0 {
		b.timer = time.AfterFunc(keepGone-now.Sub(b.gone[0].at), func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.forgetLocked(time.Now())
		})
	}
}

// Read returns a copy of a pod's line.
func (b *Book) Read(uid types.UID) (Record, bool) {
	b.mu.Lock()
	l := b.lines[uid]
	b.mu.Unlock()
	if l == nil {
		return Record{}, false
	}
	return l.Read(), true
}

// Gone returns the newest pod of this name that is gone.
func (b *Book) Gone(namespace, name string) (types.UID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.gone) - 1; i >= 0; i-- {
		l := b.lines[b.gone[i].uid]
		l.mu.Lock()
		found := l.namespace == namespace && l.name == name
		l.mu.Unlock()
		if found {
			return b.gone[i].uid, true
		}
	}
	return "", false
}
