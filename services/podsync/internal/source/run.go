package source

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sync/errgroup"

	"github.com/polylet/polylet/internal/health"
)

// Sources merges the sources. See New.
type Sources struct {
	cfg  Config
	deps Deps
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
	return &Sources{cfg: cfg, deps: deps}, nil
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
	return out
}

// Run feeds sink until ctx is done.
func (s *Sources) Run(ctx context.Context, sink Sink) error {
	group, ctx := errgroup.WithContext(ctx)
	if s.deps.Client != nil {
		group.Go(func() error { return s.runAPI(ctx, sink) })
	}
	if s.cfg.StaticPodPath != "" {
		group.Go(func() error { return s.runFiles(ctx, sink) })
	} else {
		s.deps.Mirrors.StaticReady()
	}
	return group.Wait()
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
