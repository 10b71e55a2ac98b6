// Package plugins finds the plugins that register themselves with the node, as CSI
// drivers do: each has a socket in <root>/plugins_registry, at which it says what it
// is and is told whether it was taken.
//
// It owns the watch of that directory and what is said at the sockets there. It must
// never know what a plugin is for: that is its type's Handler's. It follows no link,
// and one plugin never waits for another.
// Source: https://github.com/kubernetes/kubelet/tree/master/pkg/apis/pluginregistration
package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/health"
)

// Plugin is what a plugin says of itself.
type Plugin struct {
	Name string
	// Endpoint is the socket at which it serves what it is for.
	Endpoint string
	// Versions of that which it serves.
	Versions []string
}

// Handler takes the plugins of one type. Its methods are called for many plugins at
// once, but for those of one socket one after the other.
type Handler interface {
	// Register takes a plugin, or says why not, which the plugin is told. It may ask
	// the plugin, and ends with ctx.
	Register(ctx context.Context, p Plugin) error
	// Deregister is told that the socket of a plugin is gone that Register has taken, or
	// that another is in its place. It returns at once.
	Deregister(p Plugin)
}

// Config of a Registry.
type Config struct {
	// Dir is where plugins put their sockets; it is made when it is missing.
	Dir string
	// Handlers by type, e.g. CSIPlugin.
	Handlers map[string]Handler
	// FirstRetry is the first delay after a plugin could not be registered; zero means
	// 500 ms. It doubles up to two minutes.
	FirstRetry time.Duration
}

// Deps are what a Registry needs.
type Deps struct {
	Health health.Reporter
}

// Registry keeps every plugin registered whose socket is there.
type Registry struct {
	cfg  Config
	deps Deps
}

// New makes a Registry; it starts nothing.
func New(cfg Config, deps Deps) *Registry {
	if cfg.FirstRetry <= 0 {
		cfg.FirstRetry = 500 * time.Millisecond
	}
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	return &Registry{cfg: cfg, deps: deps}
}

// dependency is what health calls the directory.
const dependency = "plugin registration"

// Run registers plugins until ctx is done. What is registered then stays so: its plugin
// is there when this process comes back.
func (r *Registry) Run(ctx context.Context) error {
	at := &attendants{registry: r, run: ctx, all: map[string]*attendant{}}
	defer at.wait()
	again := backoff.New(backoff.Config{Initial: time.Second, Max: time.Minute, Jitter: 0.2, ResetAfter: 5 * time.Minute})
	for ctx.Err() == nil {
		err := r.follow(ctx, at)
		if err == nil {
			continue // a directory is another one now
		}
		r.deps.Health.Set(dependency, false, fmt.Sprintf("plugins are looked for only now and then: %v", err))
		if again.Wait(ctx) != nil {
			break
		}
	}
	return nil
}

// follow keeps plugins registered by what the kernel tells of the directories. It
// returns nil when it is to begin anew, or ctx is done.
func (r *Registry) follow(ctx context.Context, at *attendants) error {
	if err := os.MkdirAll(r.cfg.Dir, 0o750); err != nil {
		return err
	}
	w, watchErr := newWatch(r.cfg.Dir)
	defer w.close()
	for ctx.Err() == nil {
		began := time.Now()
		found, err := look(ctx, r.cfg.Dir, at.knows)
		if err != nil {
			return err
		}
		// What came into a directory before it was watched is found by another look.
		fresh, err := w.add(found.dirs)
		watchErr = errors.Join(watchErr, err)
		at.attend(found)
		if watchErr != nil {
			return watchErr
		}
		r.report(found)
		rest(ctx, time.Since(began))
		if !fresh && w.wait(ctx) {
			return nil
		}
	}
	return nil
}

// report says in health whether all that is there is looked at.
func (r *Registry) report(found sockets) {
	if found.more == "" {
		r.deps.Health.Set(dependency, true, "")
		return
	}
	r.deps.Health.Set(dependency, false, fmt.Sprintf("%s: %s; remove what is no plugin's", r.cfg.Dir, found.more))
}

// rest lets a moment pass between two looks, longer when they take long: who makes
// files there all the time must not keep this process busy.
func rest(ctx context.Context, took time.Duration) {
	t := time.NewTimer(max(50*time.Millisecond, 10*took))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// attendants are what keeps each socket's plugin registered.
type attendants struct {
	registry *Registry
	run      context.Context // Run's
	group    sync.WaitGroup
	all      map[string]*attendant // by path; Run's goroutine only
}

// attendant is that of one socket.
type attendant struct {
	socket socket
	end    context.CancelFunc
	ended  chan struct{}
}

// knows says whether a path is attended to.
func (at *attendants) knows(path string) bool { return at.all[path] != nil }

// attend begins with what is found and ends with what is gone. One whose place another
// has taken ends before that begins.
func (at *attendants) attend(found sockets) {
	there := map[string]socket{}
	for _, s := range found.list {
		there[s.path] = s
	}
	for path, a := range at.all {
		if there[path] != a.socket {
			a.end()
			delete(at.all, path)
			if s, again := there[path]; again {
				at.begin(s, a.ended)
			}
		}
	}
	for path, s := range there {
		if at.all[path] == nil {
			at.begin(s, nil)
		}
	}
}

// begin attends to a socket once before is closed, or at once when it is nil.
func (at *attendants) begin(s socket, before <-chan struct{}) {
	ctx, cancel := context.WithCancel(at.run)
	a := &attendant{socket: s, end: cancel, ended: make(chan struct{})}
	at.all[s.path] = a
	at.group.Go(func() {
		defer close(a.ended)
		defer cancel()
		if before != nil {
			<-before
		}
		at.registry.keep(ctx, at.run, s)
	})
}

func (at *attendants) wait() {
	for _, a := range at.all {
		a.end()
	}
	at.group.Wait()
}

// keep keeps the plugin of a socket registered until ctx is done; run is done when this
// process ends.
func (r *Registry) keep(ctx, run context.Context, s socket) {
	log := klog.FromContext(ctx).WithValues("path", s.path)
	again := backoff.New(backoff.Config{Initial: r.cfg.FirstRetry, Max: 2 * time.Minute, Jitter: 0.1})
	for failures := 0; ctx.Err() == nil; {
		handler, p, err := r.register(ctx, s)
		if err == nil {
			log.Info("A plugin is registered", "plugin", p.Name)
			<-ctx.Done()
			log.Info("A plugin is gone", "plugin", p.Name)
		}
		if handler != nil && run.Err() == nil {
			handler.Deregister(p)
		}
		if failures++; failures == 2 && ctx.Err() == nil {
			log.Info("A plugin cannot be registered; it is tried again", "err", err)
		}
		if again.Wait(ctx) != nil {
			return
		}
	}
}
