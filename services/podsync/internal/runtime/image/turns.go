package image

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// turns decides whose pull comes next: the namespace with the fewest under way, of
// equal ones the one whose last turn is longest ago. Who makes pods may name images
// without end whose registry never ends its answers. Safe for concurrent use.
type turns struct {
	// most is how many pulls have a place at once; when zero, only those of one
	// namespace are bounded.
	most int

	mu    sync.Mutex
	taken int
	// held counts the places by namespace, and under the pulls under way, those that
	// have given their places up, too; served is when each that has pulls had its last
	// turn.
	held    map[string]int
	under   map[string]int
	served  map[string]uint64
	now     uint64 // counts turns
	waiting []*turn
}

// mostOfOne is how many places the pulls of one namespace have where all together have
// as many as they want: the images of a pod are asked for at once.
const mostOfOne = 32

// turn is a pull's.
type turn struct {
	// namespace is that of the pods that want the image.
	namespace string
	// beside is how many pulls of that namespace were under way when it came.
	beside int
	ready  chan struct{}
}

func newTurns(most int) *turns {
	return &turns{most: most, held: map[string]int{}, under: map[string]int{}, served: map[string]uint64{}}
}

// ask makes a turn of a pull for a namespace; nothing waits before take.
func (t *turns) ask(namespace string) *turn {
	return &turn{namespace: namespace, ready: make(chan struct{})}
}

// bound says what a pull waits for that has no place.
func (t *turns) bound(namespace string) string {
	switch {
	case t.most == 1:
		return "images are pulled one after the other (serializeImagePulls)"
	case t.most > 1:
		return fmt.Sprintf("no more than %d images are pulled at once (maxParallelImagePulls)", t.most)
	}
	return fmt.Sprintf("no more than %d images are pulled at once for one namespace, and namespace %s has as many under way", mostOfOne, namespace)
}

// take waits for a pull's turn. yield gives its place to others while it goes on, and
// end says that it is over; the error is ctx's.
func (t *turns) take(ctx context.Context, w *turn) (yield, end func(), err error) {
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.admitLocked()
	t.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		if i := slices.Index(t.waiting, w); i >= 0 {
			t.waiting = slices.Delete(t.waiting, i, i+1)
		} else {
			t.giveLocked(w)
			t.overLocked(w)
		}
		t.forgetLocked()
		return nil, nil, ctx.Err()
	}
	held := true
	give := func() {
		if held {
			held = false
			t.giveLocked(w)
		}
	}
	yield = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		give()
		t.admitLocked()
	}
	end = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		give()
		t.overLocked(w)
		t.forgetLocked()
	}
	return yield, end, nil
}

// giveLocked counts a place less.
func (t *turns) giveLocked(w *turn) {
	t.taken--
	if t.held[w.namespace]--; t.held[w.namespace] == 0 {
		delete(t.held, w.namespace)
	}
}

// overLocked counts a pull less, and admits others.
func (t *turns) overLocked(w *turn) {
	if t.under[w.namespace]--; t.under[w.namespace] == 0 {
		delete(t.under, w.namespace)
	}
	t.admitLocked()
}

// admitLocked gives free places away.
func (t *turns) admitLocked() {
	for t.most <= 0 || t.taken < t.most {
		i := t.nextLocked()
		if i < 0 {
			return
		}
		w := t.waiting[i]
		t.waiting = slices.Delete(t.waiting, i, i+1)
		t.now++
		w.beside, t.served[w.namespace] = t.under[w.namespace], t.now
		t.taken++
		t.held[w.namespace]++
		t.under[w.namespace]++
		close(w.ready)
	}
}

// nextLocked finds the pull that comes next; negative when there is none.
func (t *turns) nextLocked() int {
	at := -1
	for i, w := range t.waiting {
		if t.most <= 0 && t.held[w.namespace] >= mostOfOne {
			continue
		}
		if at < 0 || t.beforeLocked(w.namespace, t.waiting[at].namespace) {
			at = i
		}
	}
	return at
}

// beforeLocked says whether a namespace has its turn before another.
func (t *turns) beforeLocked(a, b string) bool {
	if t.under[a] != t.under[b] {
		return t.under[a] < t.under[b]
	}
	return t.served[a] < t.served[b]
}

// forgetLocked drops when namespaces had their turns that have no pulls any more.
func (t *turns) forgetLocked() {
	for namespace := range t.served {
		waits := slices.ContainsFunc(t.waiting, func(w *turn) bool { return w.namespace == namespace })
		if t.under[namespace] == 0 && !waits {
			delete(t.served, namespace)
		}
	}
}
