package status

import (
	"sync"

	v1 "k8s.io/api/core/v1"
)

// latest holds the newest Node that the watch sent; older ones are never seen.
type latest struct {
	changed chan struct{}

	mu   sync.Mutex
	node *v1.Node
}

func newLatest() *latest { return &latest{changed: make(chan struct{}, 1)} }

func (l *latest) set(n *v1.Node) {
	l.mu.Lock()
	l.node = n
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *latest) get() *v1.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.node
}
