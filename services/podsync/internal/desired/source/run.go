package source

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sync/errgroup"

	"github.com/polylet/polylet/internal/health"
)

// Sources merges the sources. See New.
type Sources struct {
	cfg    Config
	deps   Deps
	owners *owners
	stale  stale
	// unread is how many sources of static pods have not been heard.
	unread atomic.Int32
	// readBounded reads a manifest; errWriting when it changed meanwhile.
	readBounded func(path string, limit int64) ([]byte, error)
}

// New returns Sources that start nothing before Run.
func New(cfg Config, deps Deps) (*Sources, error) {
	if cfg.NodeName == "" {
		return nil, errors.New("make the pod sources: the node name is empty")
	}
	if cfg.FileCheckFrequency <= 0 {
		cfg.FileCheckFrequency = 20 * time.Second
	}
	if cfg.MaxManifestBytes <= 0 {
		cfg.MaxManifestBytes = 10 << 20
	}
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	if deps.Events == nil {
		deps.Events = noEvents{}
	}
	if deps.Mirrors == nil {
		deps.Mirrors = noMirrors{}
	}
	if deps.Notifier == nil {
		deps.Notifier = Inotify{}
	}
	if deps.Listed == nil {
		deps.Listed = func(string, []*v1.Pod) {}
	}
	if cfg.HTTPCheckFrequency <= 0 {
		cfg.HTTPCheckFrequency = 20 * time.Second
	}
	return &Sources{cfg: cfg, deps: deps, owners: newOwners(), readBounded: readBounded}, nil
}

// Names returns the sources that are configured; each will be Ready once.
func (s *Sources) Names() []string {
	var out []string
	if s.deps.Client != nil {
		out = append(out, API)
	}
	if s.cfg.StaticPodPath != "" {
		out = append(out, File)
	}
	if s.cfg.StaticPodURL != "" {
		out = append(out, HTTP)
	}
	return out
}

// Run feeds sink until ctx is done.
func (s *Sources) Run(ctx context.Context, sink Sink) error {
	group, ctx := errgroup.WithContext(ctx)
	if s.deps.Client != nil {
		group.Go(func() error { return s.runAPI(ctx, sink) })
	}
	filesRead := make(chan struct{})
	s.unread.Store(1) // Run itself, so that no source is the last too early
	if s.cfg.StaticPodPath != "" {
		s.unread.Add(1)
		group.Go(func() error { return s.runFiles(ctx, sink, filesRead) })
	} else {
		close(filesRead)
	}
	if s.cfg.StaticPodURL != "" {
		s.unread.Add(1)
		group.Go(func() error { return s.runHTTP(ctx, sink, filesRead) })
	}
	s.staticReady()
	return group.Wait()
}

// staticReady says that one more source of static pods was heard.
func (s *Sources) staticReady() {
	if s.unread.Add(-1) == 0 {
		s.deps.Mirrors.StaticReady()
	}
}

type noEvents struct{}

func (noEvents) Pod(*v1.Pod, string, string, string) {}

func (noEvents) Node(string, string, string) {}

type noMirrors struct{}

func (noMirrors) SetStatic(*v1.Pod)      {}
func (noMirrors) RemoveStatic(types.UID) {}
func (noMirrors) StaticReady()           {}
func (noMirrors) SetMirror(*v1.Pod)      {}
func (noMirrors) RemoveMirror(types.UID) {}
func (noMirrors) MirrorsReady()          {}
