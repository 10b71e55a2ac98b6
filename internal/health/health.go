// Package health keeps what a process depends on and whether it is usable now.
// It owns the state shown by CommonService.GetInfo and grpc.health.v1; it must
// never decide anything: a lack is shown, not turned into an exit.
package health

import (
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Reporter is told by the parts of a process how their dependencies fare.
type Reporter interface {
	// Set says whether a dependency ("runtime", "apiserver", "podsync") can be
	// used; message says why not and what to do, and is dropped when ready.
	// Safe for concurrent use; only a transition is logged. The first Set for
	// a name registers it.
	Set(dependency string, ready bool, message string)
}

// Discard returns a Reporter that keeps nothing, for tests and tools.
func Discard() Reporter { return discard{} }

type discard struct{}

func (discard) Set(string, bool, string) {}

// Dependency is the state of one thing that the process needs.
type Dependency struct {
	// Name, e.g. "runtime".
	Name string
	// Ready is whether it can be used now.
	Ready bool
	// Message says why not and what to do; when ready what Note said, else empty.
	Message string
	// Since is when it came into this state of readiness.
	Since time.Time
}

// Tracker is the Reporter of a process. The zero value is not usable; see NewTracker.
type Tracker struct {
	log logr.Logger

	mu     sync.Mutex
	deps   map[string]Dependency
	notify []func(Dependency)
}

var _ Reporter = (*Tracker)(nil)

// NewTracker returns an empty Tracker that logs transitions to log.
func NewTracker(log logr.Logger) *Tracker {
	return &Tracker{log: log, deps: map[string]Dependency{}}
}

// Set implements Reporter.
func (t *Tracker) Set(name string, ready bool, message string) {
	message = sendable(message)
	if ready {
		message = ""
	}
	t.mu.Lock()
	old, known := t.deps[name]
	next := Dependency{Name: name, Ready: ready, Message: message, Since: old.Since}
	changed := !known || old.Ready != ready
	if changed {
		next.Since = time.Now()
	}
	t.deps[name] = next
	notify := t.notify
	t.mu.Unlock()

	if !changed {
		return
	}
	switch {
	case ready && known:
		t.log.Info("Dependency is ready again", "dependency", name, "notReadyFor", next.Since.Sub(old.Since).Round(time.Millisecond).String())
	case ready:
		t.log.Info("Dependency is ready", "dependency", name)
	default:
		t.log.Info("Dependency is not ready", "dependency", name, "reason", message)
	}
	for _, f := range notify {
		f(next)
	}
}

// longestMessage bounds a message, in bytes: people read it, with those of all others.
const longestMessage = 16 << 10

// sendable is a message as it can be sent: text, and not too long. What is no text, a
// file's name in an error, would keep all that is shown from being sent.
func sendable(message string) string {
	if len(message) > longestMessage {
		message = strings.ToValidUTF8(message[:longestMessage], "") + " …"
	}
	return strings.ToValidUTF8(message, "\uFFFD")
}

// Note registers something that is usable and of which something is to be known:
// it shows beside the dependencies and makes nothing wait. It is not logged.
func (t *Tracker) Note(name, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	since := time.Now()
	if old, known := t.deps[name]; known && old.Ready {
		since = old.Since
	}
	t.deps[name] = Dependency{Name: name, Ready: true, Message: sendable(message), Since: since}
}

// OnTransition has f called after each change of readiness, outside of any
// lock, in the goroutine that called Set. It must be called before the first Set.
func (t *Tracker) OnTransition(f func(Dependency)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notify = append(t.notify[:len(t.notify):len(t.notify)], f)
}

// Dependencies returns the state of all dependencies in name order.
func (t *Tracker) Dependencies() []Dependency {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Dependency, 0, len(t.deps))
	for _, d := range t.deps {
		out = append(out, d)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Ready reports whether all dependencies are ready, and names those that are not.
func (t *Tracker) Ready() (ok bool, missing []string) {
	for _, d := range t.Dependencies() {
		if !d.Ready {
			missing = append(missing, d.Name)
		}
	}
	return len(missing) == 0, missing
}
