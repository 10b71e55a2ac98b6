// Package peer gathers what the Node's status is made of: from stats the
// machine and the eviction signals, from podsync the container runtime and its
// images, from the host its names and addresses.
//
// It owns the last known facts. It must never judge them, and a peer that is
// away takes none of them back.
package peer

import (
	"bufio"
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// Store holds the facts. Safe for concurrent use.
type Store struct {
	changed wake.Signal
	// moved is told of signals.
	moved wake.Signal

	mu    sync.Mutex
	facts node.Facts
	frame pressure.Frame
}

// NewStore returns a Store that knows nothing but the host.
func NewStore(host node.Host) *Store {
	return &Store{changed: wake.New(), moved: wake.New(), facts: node.Facts{Host: host}}
}

// Changed receives after facts changed; several changes may be one.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Moved receives after eviction signals came; several frames may be one.
func (s *Store) Moved() <-chan struct{} { return s.moved }

// Get returns the facts.
func (s *Store) Get() node.Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts
}

// Frame returns the newest eviction signals; there are none until stats has sent
// some.
func (s *Store) Frame() pressure.Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frame
}

// update changes the facts; change returns whether anybody has to know at once.
func (s *Store) update(change func(f *node.Facts) bool) {
	s.mu.Lock()
	notify := change(&s.facts)
	s.mu.Unlock()
	if notify {
		s.notify()
	}
}

func (s *Store) notify() {
	s.changed.Set()
}

func (s *Store) setFrame(frame pressure.Frame) {
	s.mu.Lock()
	s.frame = frame
	s.mu.Unlock()
	s.notify()
	s.moved.Set()
}

func (s *Store) setAddresses(addresses []v1.NodeAddress) {
	s.update(func(f *node.Facts) bool {
		f.Addresses = addresses
		return true
	})
}

// AwaitShutdown says that it is not known yet whether the machine goes down, and will be
// told with SetShuttingDown.
func (s *Store) AwaitShutdown() {
	s.update(func(f *node.Facts) bool {
		f.ShutdownUnheard = true
		return false
	})
}

// SetShuttingDown says whether the machine goes down.
func (s *Store) SetShuttingDown(down bool) {
	s.update(func(f *node.Facts) bool {
		changed := f.ShuttingDown != down || f.ShutdownUnheard
		f.ShuttingDown, f.ShutdownUnheard = down, false
		return changed
	})
}

// SetCSINode says why the CSINode is not as it should be; empty when it is.
func (s *Store) SetCSINode(why string) {
	s.update(func(f *node.Facts) bool {
		changed := f.CSINode != why
		f.CSINode = why
		return changed
	})
}

// Host reads the names of the kernel and of the operating system.
func Host() node.Host {
	var name unix.Utsname
	out := node.Host{OSImage: osImage("/etc/os-release", "/usr/lib/os-release")}
	if err := unix.Uname(&name); err == nil {
		out.KernelVersion = unix.ByteSliceToString(name.Release[:])
	}
	return out
}

// osImage is PRETTY_NAME of the first file that there is.
func osImage(files ...string) string {
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		name := prettyName(f)
		_ = f.Close() // It was only read.
		return name
	}
	return "Unknown"
}

func prettyName(f *os.File) string {
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); found {
			return strings.Trim(value, `"'`)
		}
	}
	return "Linux"
}

// sleep waits, and reports whether the time passed before ctx was done.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
