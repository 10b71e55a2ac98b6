package status

import (
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/wake"
)

// latest holds the newest Node that the watch sent; older ones are never seen.
type latest struct {
	changed wake.Signal

	mu   sync.Mutex
	node *v1.Node
}

func newLatest() *latest { return &latest{changed: wake.New()} }

func (l *latest) set(n *v1.Node) {
	l.mu.Lock()
	l.node = n
	l.mu.Unlock()
	l.changed.Set()
}

func (l *latest) get() *v1.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.node
}
