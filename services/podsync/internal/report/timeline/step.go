package timeline

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Tracer makes spans of steps, for a system that collects traces. It is called
// with no lock held and must not block.
type Tracer interface {
	// Begin opens the span of a step of a pod; parent is that of the action it
	// belongs to, nil for an action itself.
	Begin(pod Pod, parent Span, what, object, detail string, at time.Time) Span
}

// Span is one open span.
type Span interface {
	End(at time.Time, err error)
}

// Pod says whose step it is.
type Pod struct {
	UID             types.UID
	Namespace, Name string
}

// Step is something that goes on. The nil Step does nothing.
type Step struct {
	line         *Line
	parent       *Step
	span         Span // nil while nobody collects traces
	what, object string
	detail       string
	began        time.Time
}

// Begin opens an action. End it.
func (l *Line) Begin(what, object, detail string, now time.Time) *Step {
	return l.begin(nil, what, object, detail, now)
}

func (l *Line) begin(parent *Step, what, object, detail string, now time.Time) *Step {
	s := &Step{line: l, parent: parent, span: l.span(parent, what, object, detail, now), what: what, object: shorten(object, longName), detail: shorten(detail, longText), began: now}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) < mostOpen {
		l.open = append(l.open, s)
	}
	return s
}

// End closes a step. err is nil when it went well.
func (s *Step) End(now time.Time, err error) {
	if s == nil {
		return
	}
	if s.span != nil {
		s.span.End(now, err)
	}
	took := max(now.Sub(s.began), time.Nanosecond)
	l := s.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.open, s); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
	if s.parent != nil && err == nil && took < quick {
		return
	}
	e := Entry{At: s.began, What: s.what, Object: s.object, Detail: s.detail, Took: took}
	if err != nil {
		e.Error = err.Error()
	}
	l.addLocked(e)
}

// Trace opens a span within the action that ctx belongs to, for what is too small
// for a line of the timeline, such as one call of the runtime. It returns the
// span and what it is done within; nil and ctx where ctx belongs to no action or
// nobody collects traces.
func Trace(ctx context.Context, what, object string) (context.Context, Span) {
	parent, _ := ctx.Value(stepKey{}).(*Step)
	if parent == nil || parent.span == nil {
		return ctx, nil
	}
	s := &Step{line: parent.line, parent: parent, span: parent.line.span(parent, what, object, "", time.Now()), what: what}
	return Within(ctx, s), s.span
}

// span opens the span of a step; nil while nobody collects traces.
func (l *Line) span(parent *Step, what, object, detail string, now time.Time) Span {
	if l.tracer == nil {
		return nil
	}
	l.mu.Lock()
	pod := Pod{UID: l.uid, Namespace: l.namespace, Name: l.name}
	l.mu.Unlock()
	var above Span
	if parent != nil {
		above = parent.span
	}
	return l.tracer.Begin(pod, above, what, object, detail, now)
}

type stepKey struct{}

// Within returns a context for what is done within the step; see Start.
func Within(ctx context.Context, s *Step) context.Context {
	return context.WithValue(ctx, stepKey{}, s)
}

// Start opens a step within the action that ctx belongs to, and returns what
// ends it. It does nothing where ctx belongs to none. What went well and was
// quick leaves no entry.
func Start(ctx context.Context, what, object, detail string) (end func(error)) {
	parent, _ := ctx.Value(stepKey{}).(*Step)
	if parent == nil {
		return func(error) {}
	}
	s := parent.line.begin(parent, what, object, detail, time.Now())
	return func(err error) { s.End(time.Now(), err) }
}

// NoteWithin adds something that has no length to the line of the action that ctx belongs
// to. It does nothing where ctx belongs to none.
func NoteWithin(ctx context.Context, e Entry) {
	if within, _ := ctx.Value(stepKey{}).(*Step); within != nil {
		within.line.Note(e)
	}
}
