package event

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/wake"
)

const (
	// ofNamespace is how many Events about pods of one namespace may wait, and ofAll of all.
	ofNamespace = 25
	ofAll       = 1000
)

// ofPods are Events about pods that wait, by namespace: whether the apiserver takes one is
// its namespace's matter, and no other waits for it. Safe for concurrent use.
type ofPods struct {
	came wake.Signal

	mu sync.Mutex
	// waiting has the namespaces, too, whose last Event is being sent.
	waiting map[string]*line
	count   int
}

// line is of one namespace.
type line struct {
	events []*v1.Event
	// sends: somebody does so with them.
	sends bool
}

func newOfPods() *ofPods { return &ofPods{came: wake.New(), waiting: map[string]*line{}} }

// add returns the Event for which there is no room; nil: there was. Whoever has many
// namespaces takes nobody else's: when all is full the newest of the longest line goes.
func (p *ofPods) add(event *v1.Event) (dropped *v1.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.waiting[event.Namespace]
	have := 0
	if l != nil {
		have = len(l.events)
	}
	if have >= ofNamespace {
		return event
	}
	if p.count >= ofAll {
		longest := p.longestLocked()
		if len(longest.events) <= have+1 {
			return event
		}
		last := len(longest.events) - 1
		dropped, longest.events = longest.events[last], longest.events[:last]
		p.count--
	}
	if l == nil {
		l = &line{}
		p.waiting[event.Namespace] = l
	}
	l.events = append(l.events, event)
	p.count++
	p.came.Set()
	return dropped
}

// longestLocked is the line of the namespace with the most; there is one.
func (p *ofPods) longestLocked() (out *line) {
	for _, l := range p.waiting {
		if out == nil || len(l.events) > len(out.events) {
			out = l
		}
	}
	return out
}

// begin are the namespaces for which nobody sends yet: the caller does, until next has none.
func (p *ofPods) begin() (namespaces []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for namespace, l := range p.waiting {
		if !l.sends {
			l.sends = true
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces
}

// next takes the one of a namespace that has waited the longest; nil: there is none, and
// nobody sends for it any more.
func (p *ofPods) next(namespace string) *v1.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.waiting[namespace]
	if len(l.events) == 0 {
		delete(p.waiting, namespace)
		return nil
	}
	event := l.events[0]
	l.events = l.events[1:]
	p.count--
	return event
}

// drainPods sends Events about pods until ctx is done.
func (s *Sender) drainPods(ctx context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ofPods.came:
		}
		for _, namespace := range s.ofPods.begin() {
			sending.Go(func() {
				for event := s.ofPods.next(namespace); event != nil && ctx.Err() == nil; event = s.ofPods.next(namespace) {
					s.send(ctx, event)
				}
			})
		}
	}
}
