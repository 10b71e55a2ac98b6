// Package observe follows what the container runtime has: through its stream of
// container events where it has one, through lists otherwise, and through a
// slow list always, as the safety net. It keeps one table of all sandboxes and
// containers and tells a Sink of each pod whose part of it changed.
//
// It owns the picture of the runtime; it must never change the runtime, and
// never guess: what it tells was said by the runtime.
//
// States of a container and of a sandbox only ever move one way, so answers
// may arrive in any order and more than once: the furthest one wins, and what
// was removed stays removed unless a later list has it again. Therefore no
// look has to wait for another.
package observe

import (
	"context"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/runtime/inventory"
)

// Client is what is asked of the runtime; *cri.Client has it.
type Client interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context) (*runtimeapi.StatusResponse, error)
	inventory.Client
	SandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	// Events opens the stream of container events, of which next is the one after the last.
	Events(ctx context.Context) (next func() (*runtimeapi.ContainerEventResponse, error), err error)
}

// Sink is told what there is. It is called in order, under the table's lock: it
// must return at once and must not call the Observer.
type Sink interface {
	// Observe gives all that the runtime has of one pod. Known is false while
	// a part of it could not be looked at yet.
	Observe(uid types.UID, o podstate.Observed)
	// RuntimeSeen says, once, that the runtime was looked at as a whole: a pod
	// that was not told of has nothing in it.
	RuntimeSeen()
	// RuntimeChanged says that the runtime's readiness or its network's changed.
	RuntimeChanged(r Runtime)
}

// Rows is the table that other services read; *podcache.Table has it.
type Rows interface {
	SetPod(uid types.UID, sandboxes []podstate.SandboxRow, containers []podstate.ContainerRow)
	// SetWhole says once that it has all that the runtime had at the start, or that who waits
	// for that waits no longer.
	SetWhole()
}

// Config of an Observer; zero fields take their defaults.
type Config struct {
	// Endpoint is shown to people when the runtime does not answer.
	Endpoint string
	// RelistEvents is how often everything is listed while events come; 60 s.
	RelistEvents time.Duration
	// RelistNoEvents is the same while they do not; 1 s.
	RelistNoEvents time.Duration
	// StatusPeriod is how often the runtime's conditions are asked for; 10 s,
	// and 500 ms while one of them is not good.
	StatusPeriod time.Duration
	// Parallel is how many pods are looked at at once; 8.
	Parallel int
	// PodsDir holds the pods' directories and PodLogsDir their logs: what a
	// container said last is read there and nowhere else, and pods are found by them
	// that are too many to be listed at once. Empty: neither is done.
	PodsDir, PodLogsDir string
}

// Observer follows one runtime. Safe for concurrent use.
type Observer struct {
	cfg    Config
	client Client
	sink   Sink
	health health.Reporter
	// metrics may be nil.
	metrics *metrics.Metrics
	table   *table
	places  chan struct{}
	kick    wake.Signal
	check   wake.Signal

	mu          sync.Mutex
	runtime     Runtime
	relistBegan time.Time          // the last one, whatever became of it
	looking     map[types.UID]bool // being looked at; true: look again after
	byPods      bool               // everything is too much to be listed at once
	tooLarge    []types.UID        // even by itself
	trust       trust

	first      sync.Once // the first list
	background sync.WaitGroup
}

// Deps are what an Observer is given; Health may be nil.
type Deps struct {
	Client Client
	Sink   Sink
	Health health.Reporter
	// Rows is shown what the runtime has, for other services; may be nil.
	Rows Rows
	// Metrics may be nil.
	Metrics *metrics.Metrics
}

// New returns an Observer; it starts nothing.
func New(cfg Config, deps Deps) *Observer {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&cfg.RelistEvents, time.Minute)
	def(&cfg.RelistNoEvents, time.Second)
	def(&cfg.StatusPeriod, 10*time.Second)
	if cfg.Parallel <= 0 {
		cfg.Parallel = 8
	}
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	return &Observer{
		cfg: cfg, client: deps.Client, sink: deps.Sink, health: deps.Health, metrics: deps.Metrics,
		table:   newTable(deps.Sink, deps.Rows, messages{podsDir: cfg.PodsDir, logsDir: cfg.PodLogsDir}),
		places:  make(chan struct{}, cfg.Parallel),
		kick:    wake.New(),
		check:   wake.New(),
		looking: map[types.UID]bool{},
	}
}

// Current returns what is known of one pod.
func (o *Observer) Current(uid types.UID) podstate.Observed { return o.table.current(uid) }

// Count returns how many pods have a ready sandbox, and how many containers are
// in each state.
func (o *Observer) Count() (pods int, containers map[podstate.ContainerState]int) {
	return o.table.count()
}

// Runtime returns what is known of the runtime itself.
func (o *Observer) Runtime() Runtime {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.runtime
}

// Run follows the runtime until ctx is done. A runtime that is not there is
// waited for.
func (o *Observer) Run(ctx context.Context) error {
	defer o.background.Wait()
	o.mu.Lock()
	o.runtime.Began = time.Now()
	o.mu.Unlock()
	if !o.connect(ctx) {
		return nil
	}
	o.background.Go(func() { o.followEvents(ctx) })
	o.background.Go(func() { o.followStatus(ctx) })
	o.relistLoop(ctx)
	return nil
}
