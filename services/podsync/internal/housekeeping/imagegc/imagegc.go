// Package imagegc removes images that nothing uses, when they are old, when the
// disk they lie on fills up, or when somebody asks for the room.
//
// It owns which images go and in which order: the one used longest ago first. It
// must never remove an image that a container has or has mounted, that a pod of this node
// wants, that the runtime has pinned, or that sandboxes are made of; and never
// one before all pods of the node are known.
//
// When an image was used is known from the containers seen since the start; it
// is written down nowhere, because the runtime is the truth and does not say.
// An image that was not used since counts from when it was first seen, and one
// that was there at the first look from the start. So a restart makes all images
// young, and removes none too early. The images are looked at more often than
// they are collected: the runtime does not tell when one comes, and one that was
// seen for the first time when it is to be collected is young and stays for
// another whole interval.
package imagegc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

// Runtime has the images; *cri.Client has it. Its calls must have deadlines.
type Runtime interface {
	// ListImages lists the images; its error is an *inventory.Partial when some are missing.
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	// ListContainers lists all containers when uid is empty.
	ListContainers(ctx context.Context, uid string) ([]*runtimeapi.Container, error)
	// ContainerStatus says what a container has mounted.
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	// RemoveImage removes an image by its id.
	RemoveImage(ctx context.Context, id string) error
	// ImageDirectory is where the images lie.
	ImageDirectory(ctx context.Context) (string, error)
	// SandboxImage names the image of sandboxes; empty when it is not known.
	SandboxImage(ctx context.Context) (string, error)
}

// Sources tell when all of them were heard, so that all pods of the node are known;
// *worker.Registry has it.
type Sources interface {
	// SourcesReady is zero before; it must not block.
	SourcesReady() time.Time
}

func (d *Deps) known() bool { return !d.Sources.SourcesReady().IsZero() }

// Pods are the pods of this node; *podcache.Pods has it.
type Pods interface{ List() []podcache.Pod }

// Containers tells which containers come and go; *podcache.Table has it.
type Containers interface {
	Subscribe(ctx context.Context) *watch.Subscription[podcache.EntryKey, podcache.Entry]
}

// Events records events on the node; *event.Recorder has it.
type Events interface {
	Node(eventType, reason, message string)
}

// Records are what is remembered of images; *pullrecord.Ledger has it.
type Records interface {
	// Prune forgets the images that are not among refs, as they were after until.
	Prune(refs []string, until time.Time) error
}

// Disk is how full a disk is.
type Disk struct {
	// CapacityBytes of all, and AvailableBytes to those who are not root.
	CapacityBytes, AvailableBytes uint64
}

// Config of a Collector.
type Config struct {
	// HighPercent is the usage of the images' disk from which on images are
	// removed, down to LowPercent. At 100, and when not positive, the usage
	// does not matter.
	HighPercent, LowPercent int
	// MinAge is how long an image is left alone after it was first seen.
	MinAge time.Duration
	// MaxAge is how long an image may be unused; for ever when zero.
	MaxAge time.Duration
	// Interval between two collections; 5 min when zero.
	Interval time.Duration
	// LookInterval between two looks at the images, which is how exactly it is
	// known since when one is there; 1 min when zero.
	LookInterval time.Duration
}

// Deps is what a Collector is given; all but Metrics, Disk and
// Records must be set.
type Deps struct {
	Runtime    Runtime
	Pods       Pods
	Containers Containers
	Events     Events
	Sources    Sources
	// Disk describes the disk on which a path lies; statfs when nil.
	Disk    func(path string) (Disk, error)
	Metrics prometheus.Registerer
	// Records may be nil.
	Records Records
}

// Collector removes images.
type Collector struct {
	cfg     Config // its limits are Run's, which writes them with mu
	deps    Deps
	changed wake.Signal            // limits are set
	removed *prometheus.CounterVec // nil without Metrics
	asked   chan request

	mu sync.Mutex
	// used is when a container was seen last of which the image has this name,
	// and of is the image's name of each container that is there now.
	used map[string]time.Time
	of   map[string]string
	// limits are those that Run has not taken yet; nil: none.
	limits *Limits
}

// Limits are what can change while a Collector runs, as in Config.
type Limits struct {
	HighPercent, LowPercent int
	MinAge, MaxAge          time.Duration
}

// SetLimits has others be used from the next collection on. Safe for concurrent use.
func (c *Collector) SetLimits(l Limits) {
	c.mu.Lock()
	c.limits = &l
	c.mu.Unlock()
	c.changed.Set()
}

// takeLimits takes those that were set last.
func (c *Collector) takeLimits() {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.limits
	c.limits = nil
	if l != nil {
		c.cfg.HighPercent, c.cfg.LowPercent, c.cfg.MinAge, c.cfg.MaxAge = l.HighPercent, l.LowPercent, l.MinAge, l.MaxAge
	}
}

type request struct {
	ctx    context.Context
	gone   func()      // called when an image is
	answer chan answer // of capacity 1
}

type answer struct {
	Reclaimed
	err error
}

// Reclaimed is what was removed for its room.
type Reclaimed struct {
	Images int
	// Bytes are what the removed images had, as the runtime said.
	Bytes uint64
	// Failed says which could not be removed and why.
	Failed []string
}

// New returns a Collector; it starts nothing.
func New(cfg Config, deps Deps) *Collector {
	if cfg.Interval <= 0 {
		cfg.Interval = 5 * time.Minute
	}
	if cfg.LookInterval <= 0 {
		cfg.LookInterval = time.Minute
	}
	if deps.Disk == nil {
		deps.Disk = statfs
	}
	c := &Collector{cfg: cfg, deps: deps, changed: wake.New(), asked: make(chan request), used: map[string]time.Time{}, of: map[string]string{}}
	if deps.Metrics != nil {
		c.removed = prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total",
			Help: "Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
		}, []string{"reason"})
		deps.Metrics.MustRegister(c.removed)
	}
	return c
}

// byUsage tells that the disk's usage matters.
func (c *Collector) byUsage() bool { return c.cfg.HighPercent > 0 && c.cfg.HighPercent < 100 }

// looks tells that the images are looked at from time to time.
func (c *Collector) looks() bool { return c.byUsage() || c.cfg.MaxAge > 0 }

// Run looks at the images from time to time until ctx is done.
func (c *Collector) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { c.follow(ctx) })
	defer following.Wait()
	defer cancel()
	p := &pass{c: c, began: time.Now(), images: map[string]*record{}}
	ticker, looker := time.NewTicker(c.cfg.Interval), time.NewTicker(c.cfg.LookInterval)
	defer ticker.Stop()
	defer looker.Stop()
	var ticks, looks <-chan time.Time // none when there is nothing to look for
	begin := func() {
		before := looks != nil
		if ticks, looks = nil, nil; !c.looks() {
			return
		}
		if !before { // what was used until now nobody has looked at
			p.began = time.Now()
		}
		ticks, looks = ticker.C, looker.C
		if _, err := p.look(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(1).Info("Could not look at the images yet", "err", err.Error())
		}
	}
	begin()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
			c.takeLimits()
			begin()
		case <-looks:
			_, _ = p.look(ctx) // a failure that lasts is told of when images are collected
		case <-ticks:
			failures = c.report(ctx, p.collect(ctx), failures)
		case r := <-c.asked:
			freed, err := p.reclaimWithin(ctx, r)
			r.answer <- answer{freed, err}
		}
	}
}

// removal is how long a reclaim waits for the next image to be gone. What ends pods for a
// disk waits for it, and a runtime that hangs may do so for minutes.
const removal = 30 * time.Second

// errHangs says why a reclaim was given up.
var errHangs = fmt.Errorf("none has gone for %s; look whether the runtime hangs", removal)

// Reclaim removes all images that nothing uses, whatever their age, and goes on when
// one cannot be removed. It waits for Run. When no image goes for removal, it returns
// with what was freed and an error.
// Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#reclaim-node-resources
func (c *Collector) Reclaim(parent context.Context) (Reclaimed, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	late := time.AfterFunc(removal, func() { cancel(errHangs) })
	defer late.Stop()
	r := request{ctx, func() { late.Reset(removal) }, make(chan answer, 1)}
	select {
	case c.asked <- r:
	case <-ctx.Done():
		return Reclaimed{}, fmt.Errorf("remove unused images: %w", context.Cause(ctx))
	}
	select {
	case a := <-r.answer:
		return a.Reclaimed, a.err
	case <-ctx.Done():
	}
	parting := time.NewTimer(time.Second)
	defer parting.Stop()
	select {
	case a := <-r.answer: // What was removed until then is freed.
		return a.Reclaimed, a.err
	case <-parting.C:
		return Reclaimed{}, fmt.Errorf("remove unused images: %w", context.Cause(ctx))
	}
}

// ErrNotAllKnown: not all pods of the node are known yet, nor which images they want.
var ErrNotAllKnown = errors.New("not all pods of the node are known yet")

// report says what became of a look; it returns the failures in a row. One
// failure alone may pass: the runtime may be starting.
func (c *Collector) report(ctx context.Context, err error, failures int) int {
	log := klog.FromContext(ctx)
	switch {
	case ctx.Err() != nil:
	case err == nil && failures > 0:
		log.Info("Unused images are collected again")
		return 0
	case err == nil:
	case failures == 0:
		log.Error(err, "Could not collect unused images; it is tried again", "in", c.cfg.Interval.String())
		return 1
	default:
		c.deps.Events.Node(v1.EventTypeWarning, "ImageGCFailed", err.Error())
		return failures + 1
	}
	return failures
}

// follow notes when containers were seen, those that come and go between two
// looks too.
func (c *Collector) follow(ctx context.Context) {
	sub := c.deps.Containers.Subscribe(ctx)
	defer sub.Close()
	for {
		f, err := sub.Next(ctx)
		if err != nil {
			return
		}
		c.saw(f.Changed, f.Removed, time.Now())
	}
}

func (c *Collector) saw(changed map[podcache.EntryKey]podcache.Entry, removed []podcache.EntryKey, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range changed {
		if e.Container != nil && e.Container.Image != "" {
			name := canonical(e.Container.Image)
			c.of[e.Container.ID], c.used[name] = name, now
		}
	}
	for _, key := range removed {
		if name, ok := c.of[key.ID]; ok {
			c.used[name] = now
			delete(c.of, key.ID)
		}
	}
	if len(removed) > 0 && !c.looks() {
		// Nobody will ask which was used last, nor forget those that are gone.
		there := map[string]bool{}
		for _, name := range c.of {
			there[name] = true
		}
		maps.DeleteFunc(c.used, func(name string, _ time.Time) bool { return !there[name] })
	}
}

// lastUse takes out when containers of images with these names were seen last.
func (c *Collector) lastUse(names []string) (last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if at := c.used[name]; at.After(last) {
			last = at
		}
	}
	return last
}

// forgetUses forgets uses of names that no image has.
func (c *Collector) forgetUses(names map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.used {
		if !names[name] {
			delete(c.used, name)
		}
	}
}

var errCapacity = errors.New("invalid capacity 0 on image filesystem")
