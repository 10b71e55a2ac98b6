// Package allocation keeps what pods were given by a resize, so that it outlives
// a crash: in one checkpoint file. What a pod was given when it was admitted is
// not in it; the annotation of the pod's sandbox says that.
//
// It must never decide what is allocated.
package allocation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/services/podsync/internal/resize"
)

// Entry is the last resize of one pod that was allocated.
type Entry struct {
	resize.Allocation
	// Generation of the pod that asked for it.
	Generation int64 `json:"generation"`
	// At is when it was allocated.
	At time.Time `json:"at"`
}

// Store keeps entries. Safe for concurrent use; the nil *Store has none and
// keeps none.
type Store struct {
	file *fsatomic.Checkpoint[map[types.UID]Entry]

	mu      sync.Mutex
	entries map[types.UID]Entry
	loaded  bool // there was a file, whatever it held
	damaged bool // and it could not be used
	// turn lets one write at a time; what one has written others need not.
	turn             chan struct{}
	changed, written uint64
}

// New names the file; nothing is touched yet.
func New(path string) *Store {
	return &Store{file: fsatomic.NewCheckpoint[map[types.UID]Entry](path), entries: map[types.UID]Entry{}, turn: make(chan struct{}, 1)}
}

// Load reads the file; call it before the first Get. A damaged one is set aside
// and told as an error: Damaged is true then.
func (s *Store) Load() error {
	if s == nil {
		return nil
	}
	entries, err := s.file.Read()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	s.loaded, s.damaged = true, err != nil
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.entries, entries)
	return nil
}

// Damaged says whether what earlier lives had kept was lost: any pod may have been
// resized then.
func (s *Store) Damaged() bool { return s != nil && s.damaged }

// Get is the last resize of a pod; false when there was none.
func (s *Store) Get(uid types.UID) (Entry, bool) {
	if s == nil {
		return Entry{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[uid]
	return e, ok
}

// Put keeps an entry. When it returns nil, a crash does not lose it.
func (s *Store) Put(ctx context.Context, uid types.UID, e Entry) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.entries[uid] = e
	s.changed++
	mine := s.changed
	s.mu.Unlock()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("keep what pod %s was allocated: %w", uid, context.Cause(ctx))
	}
	defer func() { <-s.turn }()
	s.mu.Lock()
	if s.written >= mine {
		s.mu.Unlock()
		return nil // another's write had it too
	}
	snapshot, upTo := maps.Clone(s.entries), s.changed
	s.mu.Unlock()
	if err := s.file.Write(snapshot); err != nil {
		return fmt.Errorf("keep what pod %s was allocated: %w", uid, err)
	}
	s.mu.Lock()
	s.written = upTo
	s.mu.Unlock()
	return nil
}

// Forget drops the entry of a pod that is gone. The file follows with the next
// Put: an entry of a pod that does not exist says nothing.
func (s *Store) Forget(uid types.UID) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, uid)
}

// Prune drops the entries of pods that were gone before this process began.
func (s *Store) Prune(exists func(types.UID) bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.entries, func(uid types.UID, _ Entry) bool { return !exists(uid) })
}
