// Package watch owns snapshot-then-delta streams: a keyed store whose
// subscribers first get everything and then what changed, newest value per key.
// It must never make the writer wait for a reader, and never do I/O itself.
package watch

import (
	"context"
	"errors"
	"sync"

	"github.com/polylet/polylet/internal/wake"
)

// ErrClosed is what Next returns after Close.
var ErrClosed = errors.New("subscription is closed")

// Frame is one step of a subscription.
type Frame[K comparable, V any] struct {
	// Epoch of the store, random per start of the process that owns it.
	Epoch uint64
	// Revision counts the frames of one subscription from 1.
	Revision uint64
	// Snapshot is true for the first frame: Changed is all there is.
	Snapshot bool
	// Changed holds new and changed values. They are shared with the store and
	// must not be modified.
	Changed map[K]V
	// Removed holds keys that are gone. A key that came and went between two
	// frames is in it too, though the subscriber never saw it.
	Removed []K
}

// Store is a map with subscribers. Safe for concurrent use. Values must not be
// changed after Set.
type Store[K comparable, V any] struct {
	epoch uint64
	equal func(a, b V) bool

	mu    sync.Mutex
	items map[K]V
	subs  map[*Subscription[K, V]]struct{}
}

// NewStore returns an empty store. equal tells when a Set changes nothing and
// is not worth a frame; nil sends every Set.
func NewStore[K comparable, V any](epoch uint64, equal func(a, b V) bool) *Store[K, V] {
	return &Store[K, V]{
		epoch: epoch,
		equal: equal,
		items: map[K]V{},
		subs:  map[*Subscription[K, V]]struct{}{},
	}
}

// Epoch returns the store's epoch.
func (s *Store[K, V]) Epoch() uint64 { return s.epoch }

// Set puts a value; it reports whether that changed anything.
func (s *Store[K, V]) Set(key K, value V) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set(key, value)
}

func (s *Store[K, V]) set(key K, value V) bool {
	if old, ok := s.items[key]; ok && s.equal != nil && s.equal(old, value) {
		return false
	}
	s.items[key] = value
	s.mark(key)
	return true
}

// Delete removes a key; it reports whether it was there.
func (s *Store[K, V]) Delete(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(key)
}

func (s *Store[K, V]) remove(key K) bool {
	if _, ok := s.items[key]; !ok {
		return false
	}
	delete(s.items, key)
	s.mark(key)
	return true
}

// Replace makes the store hold exactly all; subscribers get the difference in
// one frame. The map is copied.
func (s *Store[K, V]) Replace(all map[K]V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.items {
		if _, keep := all[key]; !keep {
			s.remove(key)
		}
	}
	for key, value := range all {
		s.set(key, value)
	}
}

// Get returns the value of a key.
func (s *Store[K, V]) Get(key K) (V, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.items[key]
	return v, ok
}

// Len returns how many keys there are.
func (s *Store[K, V]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items)
}

// Snapshot returns a copy of the map.
func (s *Store[K, V]) Snapshot() map[K]V {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot()
}

func (s *Store[K, V]) snapshot() map[K]V {
	out := make(map[K]V, len(s.items))
	for k, v := range s.items {
		out[k] = v
	}
	return out
}

func (s *Store[K, V]) mark(key K) {
	for sub := range s.subs {
		if !sub.started {
			continue // the snapshot will hold it
		}
		sub.pending[key] = struct{}{}
		sub.signal()
	}
}

// Subscribe opens a subscription that ends with ctx or with Close.
func (s *Store[K, V]) Subscribe(ctx context.Context) *Subscription[K, V] {
	sub := &Subscription[K, V]{
		store:   s,
		pending: map[K]struct{}{},
		wake:    wake.New(),
		done:    make(chan struct{}),
	}
	s.mu.Lock()
	s.subs[sub] = struct{}{}
	s.mu.Unlock()
	sub.stop = context.AfterFunc(ctx, sub.end) // which may run before this returns
	return sub
}

// Subscription is one reader of a Store. One goroutine may call Next.
type Subscription[K comparable, V any] struct {
	store *Store[K, V]
	stop  func() bool
	wake  wake.Signal
	done  chan struct{}
	once  sync.Once

	// under store.mu
	pending  map[K]struct{}
	started  bool
	revision uint64
}

func (s *Subscription[K, V]) signal() {
	s.wake.Set()
}

// Next returns the snapshot the first time, at once, and then waits for
// changes. What changed while the caller was busy comes in one frame, with the
// newest value of each key. It returns ctx's error, or ErrClosed.
func (s *Subscription[K, V]) Next(ctx context.Context) (Frame[K, V], error) {
	for {
		if err := ctx.Err(); err != nil {
			return Frame[K, V]{}, err
		}
		select {
		case <-s.done:
			return Frame[K, V]{}, ErrClosed
		default:
		}
		if frame, ok := s.take(); ok {
			return frame, nil
		}
		select {
		case <-s.wake:
		case <-s.done:
			return Frame[K, V]{}, ErrClosed
		case <-ctx.Done():
			return Frame[K, V]{}, ctx.Err()
		}
	}
}

func (s *Subscription[K, V]) take() (Frame[K, V], bool) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	frame := Frame[K, V]{Epoch: s.store.epoch, Revision: s.revision + 1}
	switch {
	case !s.started:
		s.started = true
		frame.Snapshot = true
		frame.Changed = s.store.snapshot()
	case len(s.pending) == 0:
		return frame, false
	default:
		frame.Changed = make(map[K]V, len(s.pending))
		for key := range s.pending {
			if value, ok := s.store.items[key]; ok {
				frame.Changed[key] = value
			} else {
				frame.Removed = append(frame.Removed, key)
			}
		}
		clear(s.pending)
	}
	s.revision++
	return frame, true
}

// Close ends the subscription; Next returns ErrClosed. It may be called often.
func (s *Subscription[K, V]) Close() {
	s.end()
	s.stop()
}

func (s *Subscription[K, V]) end() {
	s.once.Do(func() {
		close(s.done)
		s.store.mu.Lock()
		delete(s.store.subs, s)
		s.store.mu.Unlock()
	})
}
