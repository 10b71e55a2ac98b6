// Package smallfiles keeps small what containers write into the files of the
// node that every container has mounted: the hosts file of its pod and its own
// termination log. They lie on the node's own disk, and a container may write to
// them as it likes: without a bound it fills that disk (CVE-2020-8557).
//
// It must never write to a file, only cut it, and where the kernel tells of
// writes it never looks at one that nobody has written to.
package smallfiles

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/wake"
)

const (
	// Limit is how many bytes of a hosts file stay. What podsync writes into one
	// comes from a pod's object, which cannot be larger.
	Limit = 2 << 20
	// TerminationLimit is how many bytes of a termination log stay; its last 4
	// KiB are read.
	TerminationLimit = 64 << 10
	// restFor is how long a file that was written to is not looked at again: a
	// container that writes all the time costs ten looks a second, no more.
	restFor = 100 * time.Millisecond
	// lookEvery is how often files are looked at that the kernel cannot watch.
	lookEvery = 3 * time.Second
	// sayAgain is how often it is said at most that events were lost.
	sayAgain  = time.Minute
	hostsFile = "etc-hosts"
)

// Watcher is told by the kernel of writes to files; *fsnotify.Watcher by default.
type Watcher interface {
	Add(file string) error
	Remove(file string) error
	Close() error
	// Told returns what is seen; neither channel is closed before Close.
	Told() (<-chan fsnotify.Event, <-chan error)
}

// Deps is what a Guard is given.
type Deps struct {
	// Health is told under "hosts files" when files can only be looked at by
	// time; may be nil.
	Health health.Reporter
	// NewWatcher is inotify when nil.
	NewWatcher func() (Watcher, error)
}

// Guard watches the small files of pods. Watch is safe for concurrent use; Run
// runs once.
type Guard struct {
	podsDir string
	deps    Deps
	asked   wake.Signal // wakes Run

	mu    sync.Mutex
	files []string // to be watched
}

// New returns a Guard of the pods below podsDir, the root directory's pods/.
func New(podsDir string, deps Deps) *Guard {
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	if deps.NewWatcher == nil {
		deps.NewWatcher = inotify
	}
	return &Guard{podsDir: podsDir, deps: deps, asked: wake.New()}
}

// Watch has a pod's hosts file, or a container's termination log, watched until
// it is removed. It never waits, and may be called again for the same file.
func (g *Guard) Watch(file string) {
	g.mu.Lock()
	g.files = append(g.files, file)
	g.mu.Unlock()
	g.asked.Set()
}

func (g *Guard) take() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	files := g.files
	g.files = nil
	return files
}

// left are the files of the pods of previous runs.
func (g *Guard) left() []string {
	// The patterns are well formed, which is all that Glob complains about.
	hosts, _ := filepath.Glob(filepath.Join(g.podsDir, "*", hostsFile))
	logs, _ := filepath.Glob(filepath.Join(g.podsDir, "*", "containers", "*", "*"))
	return append(hosts, logs...)
}

// Run watches until ctx is done, the files of pods of previous runs too. What
// the kernel does not watch (it bounds the number of watchers, which containers
// share, and of watches) is looked at every few seconds, and health says so.
func (g *Guard) Run(ctx context.Context) error {
	w := &watch{Guard: g, log: klog.FromContext(ctx), told: map[string]bool{}, timed: map[string]bool{}, leased: map[string]bool{}}
	defer w.close()
	w.open()
	for _, file := range g.left() {
		w.look(file)
	}
	w.report()
	rested := make(chan string)
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		events, errs := w.sources()
		select {
		case <-ctx.Done():
			return nil
		case <-g.asked:
			for _, file := range g.take() {
				w.look(file)
			}
		case file := <-rested:
			w.look(file)
		case <-ticker.C:
			w.tick()
		case event := <-events:
			w.saw(event, func(file string) {
				select {
				case rested <- file:
				case <-ctx.Done():
				}
			})
		case err := <-errs:
			w.lost(err)
			for _, file := range g.left() {
				w.look(file)
			}
		}
		w.report()
	}
}

// Off watches nothing: for tests on virtual time, which the kernel does not keep.
type Off struct{}

// Watch does nothing.
func (Off) Watch(string) {}

// Run waits for ctx.
func (Off) Run(ctx context.Context) error { <-ctx.Done(); return nil }
