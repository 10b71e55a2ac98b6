package sampler

import (
	"sync"
	"time"

	"github.com/google/cadvisor/lib/model"
)

const (
	// keepFor is how long what changes seldom or is dear to read is kept:
	// limits, and the counts of open files. cAdvisor reads all of it as often.
	keepFor = 10 * time.Second
	// keepShare bounds the part of the time that may go into reading it again:
	// what takes a second is read every 100 seconds.
	keepShare = 100
)

// limits of a cgroup, and when it was made.
type limits struct {
	memory  uint64  // 0 is none
	swap    *uint64 // nil is none
	created time.Time
}

// details are what only the cAdvisor document has.
type details struct {
	spec       model.ContainerSpec
	threadsMax uint64
	ulimits    []model.UlimitSpec
}

// keeper keeps it. Safe for concurrent use; two that ask for the same at once
// both read it.
type keeper[T any] struct {
	mu     sync.Mutex
	byName map[string]*kept[T]
}

type kept[T any] struct {
	value       T
	until, seen time.Time
}

// get returns what is kept of a cgroup, or has it read.
func (k *keeper[T]) get(name string, read func() T) T {
	now := time.Now()
	k.mu.Lock()
	if x := k.byName[name]; x != nil && now.Before(x.until) {
		x.seen = now
		value := x.value
		k.mu.Unlock()
		return value
	}
	k.mu.Unlock()
	x := &kept[T]{value: read(), seen: now}
	x.until = now.Add(max(keepFor, keepShare*time.Since(now)))
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byName == nil {
		k.byName = map[string]*kept[T]{}
	}
	k.byName[name] = x
	return x.value
}

// forget drops what was not asked for since a time.
func (k *keeper[T]) forget(before time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, x := range k.byName {
		if x.seen.Before(before) {
			delete(k.byName, name)
		}
	}
}
