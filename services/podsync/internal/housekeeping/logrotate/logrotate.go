// Package logrotate keeps the logs of running containers within their size: it
// watches how they grow, gives a log that is full another name, has the runtime
// open a new one, compresses old ones and removes the oldest. It also makes the
// links to logs that lack one, and removes those to logs that are gone.
//
// It owns when a log is looked at. It must never touch the log of a container
// that does not run, never follow a link below the log directory, and never let
// one hung call to the runtime hold the rotation of others for long.
//
// # When a log is looked at
//
// A look is one lstat. A log that does not grow is looked at once per Interval,
// all of them at the same moments, so that an idle node wakes once for all of
// them. Not less often than that: a container may begin to write at any moment,
// and what a log has more than MaxSize is bounded by what is written between two
// looks. A log that grows is looked at when, at its rate, three quarters of what
// is left are written; never earlier than a second and never later than
// Interval. A container that has just started is looked at after 1, 2, 4, …
// seconds until its rate is known. So a log that is written evenly is over its
// limit by about a second's bytes, and any log by at most Interval's.
package logrotate

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

// Runtime opens logs anew; *cri.Client has it. Its calls must have a deadline.
type Runtime interface {
	// ReopenLog makes the runtime close a running container's log file and
	// open, or make, the one at the log's path.
	ReopenLog(ctx context.Context, containerID string) error
}

// Containers tells which containers run; *podcache.Table has it.
type Containers interface {
	Subscribe(ctx context.Context) *watch.Subscription[podcache.EntryKey, podcache.Entry]
}

// Config of a Rotator.
type Config struct {
	// PodLogsDir is the directory below which all logs are, and LinksDir holds
	// links to them, e.g. /var/log/pods and /var/log/containers. Links are not
	// looked after when LinksDir is empty.
	PodLogsDir, LinksDir string
	// MaxSize in bytes is what a log is rotated at; nothing is rotated when it
	// is not positive.
	MaxSize int64
	// MaxFiles is how many files a log has at most, the current one among
	// them; 5 when less than 2.
	MaxFiles int
	// Workers is how many logs are rotated at once; 1 when not positive.
	Workers int
	// Interval is the longest time between two looks at a log; 10 s when not
	// positive.
	Interval time.Duration
}

// Deps is what a Rotator is given; both must be set.
type Deps struct {
	Runtime    Runtime
	Containers Containers
}

// Rotator rotates logs.
type Rotator struct {
	cfg  Config // MaxSize and MaxFiles are those below
	deps Deps
	// maxSize and maxFiles may change while it runs.
	maxSize, maxFiles atomic.Int64
	// slots bounds the rotations that are under way.
	slots  chan struct{}
	zipper *zipper

	mu      sync.Mutex
	running map[string]bool // log paths of running containers
}

// New returns a Rotator; it starts nothing.
func New(cfg Config, deps Deps) *Rotator {
	if cfg.Interval <= 0 {
		cfg.Interval = 10 * time.Second
	}
	cfg.PodLogsDir = filepath.Clean(cfg.PodLogsDir)
	r := &Rotator{
		cfg: cfg, deps: deps, slots: make(chan struct{}, max(cfg.Workers, 1)), zipper: newZipper(),
		running: map[string]bool{},
	}
	r.SetLimits(cfg.MaxSize, cfg.MaxFiles)
	return r
}

// SetLimits has other sizes and numbers be used (Config.MaxSize, Config.MaxFiles) from the
// next look at each log on. Safe for concurrent use.
func (r *Rotator) SetLimits(maxSize int64, maxFiles int) {
	if maxFiles < 2 {
		maxFiles = 5
	}
	r.maxSize.Store(maxSize)
	r.maxFiles.Store(int64(maxFiles))
}

// Run rotates until ctx is done, and returns when nothing is under way any more.
func (r *Rotator) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	frames := make(chan frame)
	parts.Go(func() { r.follow(ctx, frames) })
	parts.Go(func() { r.zipper.run(ctx) })
	if r.cfg.LinksDir != "" {
		parts.Go(func() { r.sweepLinks(ctx) })
	}
	loop := &loop{r: r, log: klog.FromContext(ctx), logs: map[string]*tracked{}, done: make(chan outcome), began: time.Now()}
	loop.run(ctx, frames)
	return nil
}

type frame = watch.Frame[podcache.EntryKey, podcache.Entry]

// follow hands the table's frames on.
func (r *Rotator) follow(ctx context.Context, out chan<- frame) {
	sub := r.deps.Containers.Subscribe(ctx)
	defer sub.Close()
	for {
		f, err := sub.Next(ctx)
		if err != nil {
			return
		}
		select {
		case out <- f:
		case <-ctx.Done():
			return
		}
	}
}

// setRunning says whether a container runs whose log has this path.
func (r *Rotator) setRunning(path string, runs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if runs {
		r.running[path] = true
	} else {
		delete(r.running, path)
	}
}

func (r *Rotator) isRunning(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[path]
}

// logged is the container whose log is rotated, when it runs and its log lies
// where it should.
func (r *Rotator) logged(e podcache.Entry) (podstate.ContainerRow, bool) {
	c := e.Container
	if c == nil || c.State != podstate.StateRunning {
		return podstate.ContainerRow{}, false
	}
	_, err := r.locate(c.LogPath)
	return *c, err == nil
}
