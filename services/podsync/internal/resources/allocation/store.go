// Package allocation keeps what pods were given by a resize, or when they were
// admitted, so that it outlives a crash: in one checkpoint file, and in the two that a
// kubelet reads which takes the node over. Of a pod that has
// a sandbox and was never resized it may know nothing; the annotation of the
// sandbox says it then.
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
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// Entry is the last resize of one pod that was allocated, or what it was admitted
// with.
type Entry struct {
	resize.Allocation
	// Generation of the pod that asked for it; zero for what it was admitted with.
	Generation int64 `json:"generation"`
	// At is when it was allocated.
	At time.Time `json:"at"`
	// Before is what was in effect before it, until it is in effect itself; nil then.
	Before *resize.Allocation `json:"before,omitempty"`
	// Rest is what the pod asks for beside that; nil when an earlier release wrote it.
	Rest *resize.Allocation `json:"rest,omitempty"`
}

// Store keeps entries. Safe for concurrent use; the nil *Store has none and
// keeps none.
type Store struct {
	path   string
	file   *fsatomic.Checkpoint[contents]
	health health.Reporter

	mu      sync.Mutex
	entries map[types.UID]Entry
	loaded  bool      // there was a file, whatever it held
	spoiled bool      // it could not be used
	lost    time.Time // when one was found that could not be used
	// turn lets one write at a time; what one has written others need not.
	turn             chan struct{}
	changed, written uint64
	// handback are the kubelet's files, handed what changed of them since.
	handback handback
	// notAdopted: what a kubelet had allocated could not be taken over; whose turn it
	// is has it.
	notAdopted bool
}

// What health knows them as: the file, and the kubelet's.
const (
	healthName  = "allocations"
	kubeletName = "kubelet's allocations"
)

// contents is what the file holds.
type contents struct {
	Pods map[types.UID]Entry `json:"pods"`
	// Lost is when an earlier file was found damaged: later runs need to know,
	// until no pod is left that may have been resized before.
	Lost time.Time `json:"lost,omitzero"`
	// HandsBack: whoever wrote this had put its mark on the kubelet's file before.
	HandsBack bool `json:"handsBack,omitempty"`
}

// New names the file; nothing is touched yet. told may be nil; it learns whether the
// file can be read and written.
func New(path string, told health.Reporter) *Store {
	if told == nil {
		told = health.Discard()
	}
	return &Store{path: path, file: fsatomic.NewCheckpoint[contents](path), health: told, entries: map[types.UID]Entry{}, turn: make(chan struct{}, 1), handback: handback{changed: wake.New()}}
}

// errLossNotKept says that a damaged file has no sound one in its place.
var errLossNotKept = errors.New("write down that allocations were lost")

// Load reads the file; call it before the first Get. A damaged one is set aside
// and told as an error; that it was is written down for later runs.
func (s *Store) Load() error {
	if s == nil {
		return nil
	}
	err := s.load()
	if err != nil {
		s.health.Set(healthName, false, err.Error())
		if !errors.Is(err, errLossNotKept) {
			s.health.Set(healthName, true, "") // a sound file has its place: nothing waits for it
		}
	}
	return err
}

func (s *Store) load() error {
	found, err := s.file.Read()
	switch {
	case err == nil && found.Pods != nil:
		s.begin(found)
		return nil
	case err == nil:
		err = fmt.Errorf("%s holds no pods: it is not what this version writes; what its pods were allocated is read from their statuses", s.path)
	case errors.Is(err, os.ErrNotExist):
		aside, asideErr := fsatomic.Asides(s.path)
		if asideErr != nil || len(aside) == 0 {
			return asideErr
		}
		err = nil // it was told; a crash came before it was written down
	}
	lost := contents{Pods: map[types.UID]Entry{}, Lost: time.Now()}
	s.begin(lost)
	s.spoiled = true
	if writeErr := s.file.Write(lost); writeErr != nil {
		return errors.Join(err, fmt.Errorf("%w: %w; check that the disk has room", errLossNotKept, writeErr))
	}
	return err
}

// begin takes over what was kept.
func (s *Store) begin(c contents) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded, s.lost, s.handback.kept = true, c.Lost, c.HandsBack
	maps.Copy(s.entries, c.Pods)
}

// Lost says whether a resize of a pod whose sandbox was made then may have been
// lost with a damaged file.
func (s *Store) Lost(made time.Time) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.lost.IsZero() && !made.After(s.lost)
}

// Get is what is kept of a pod; false when nothing is.
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
	if old, ok := s.entries[uid]; ok && old.Before != nil {
		e.Before = old.Before // neither is in effect
	}
	s.entries[uid] = e
	s.changed++
	mine := s.changed
	s.mu.Unlock()
	if err := s.keep(ctx, mine); err != nil {
		return fmt.Errorf("keep what pod %s was allocated: %w", uid, err)
	}
	s.handback.changed.Set()
	return nil
}

// InEffect takes in that a pod has what it was allocated for this generation. The
// file follows soon.
func (s *Store) InEffect(uid types.UID, generation int64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[uid]; ok && e.Before != nil && e.Generation == generation {
		e.Before = nil
		s.entries[uid] = e
		s.changed++
		s.handback.changed.Set()
	}
}

// keep writes the file, unless another's write had the change of this number too.
func (s *Store) keep(ctx context.Context, mine uint64) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	s.mu.Lock()
	if s.written >= mine {
		s.mu.Unlock()
		return nil // another's write had it too
	}
	snapshot, upTo := contents{Pods: maps.Clone(s.entries), Lost: s.lost, HandsBack: s.handback.ours}, s.changed
	s.mu.Unlock()
	if err := s.file.Write(snapshot); err != nil {
		s.health.Set(healthName, false, fmt.Sprintf("keep what pods are allocated: %v; check that the disk has room and is writable; it is tried again with the next pod or resize", err))
		return err
	}
	s.health.Set(healthName, true, "")
	if s.notAdopted { // this file counts from now on
		s.notAdopted = false
		s.health.Set(kubeletName, true, "")
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
