package event

import (
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// mostRecent bounds how many events are kept for people, longMessage each.
	mostRecent  = 200
	longMessage = 1 << 10
)

// Recorded is an event as it was recorded.
type Recorded struct {
	// At is when it was recorded last, Count how often in a row.
	At    time.Time
	Count int
	// Kind, Namespace and Name of the object.
	Kind, Namespace, Name string
	// Container that it is about; may be empty.
	Container string
	// Type is Normal or Warning.
	Type, Reason, Message string
}

// ring keeps the newest events. Safe for concurrent use.
type ring struct {
	mu     sync.Mutex
	events []Recorded
	next   int // where the next one goes once events is full
}

func (r *ring) add(e Recorded) {
	if len(e.Message) > longMessage {
		e.Message = strings.ToValidUTF8(strings.Clone(e.Message[:longMessage]), "") + " …"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.last(); last != nil && last.same(&e) {
		last.At, last.Count = e.At, last.Count+1
		return
	}
	if len(r.events) < mostRecent {
		r.events = append(r.events, e)
		return
	}
	r.events[r.next] = e
	r.next = (r.next + 1) % mostRecent
}

func (r *ring) last() *Recorded {
	if len(r.events) == 0 {
		return nil
	}
	return &r.events[(r.next+len(r.events)-1)%len(r.events)]
}

func (e *Recorded) same(o *Recorded) bool {
	a, b := *e, *o
	a.At, a.Count = b.At, b.Count
	return a == b
}

// all returns the events, oldest first.
func (r *ring) all() []Recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Recorded, 0, len(r.events))
	return append(append(out, r.events[r.next:]...), r.events[:r.next]...)
}

// Recent returns the newest events, a bounded number, oldest first.
func (r *Recorder) Recent() []Recorded { return r.recent.all() }

// keep notes an event for Recent.
func (r *Recorder) keep(n note) {
	r.recent.add(Recorded{
		At: time.Now(), Count: 1, Kind: n.ref.Kind, Namespace: n.ref.Namespace, Name: n.ref.Name,
		Container: containerOf(n.ref), Type: n.eventType, Reason: n.reason, Message: n.message,
	})
}

// containerOf takes the container's name out of a field path.
func containerOf(ref *v1.ObjectReference) string {
	_, rest, _ := strings.Cut(ref.FieldPath, "{")
	return strings.TrimSuffix(rest, "}")
}
