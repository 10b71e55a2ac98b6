// Package growth has the volumes of claims grown on the node: when they are mounted, and
// while they are used.
//
// It owns when a volume is grown, what its claim's status says of that, and the events of
// it. It must never grow a volume itself, which is its driver's, and never a volume that no
// pod of the node has.
//
// A node may not watch claims. It reads each that its pods use about once a minute, as the
// kubelet does with a pod's turn, and while a claim is on its way to another size more
// often.
package growth

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// Claims reads claims and what they are bound to; *objects.Store has it.
type Claims interface {
	Claim(ctx context.Context, uid types.UID, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, uid types.UID, namespace, name string) (*v1.PersistentVolume, error)
}

// Status writes the status of claims; *claimstatus.Writer has it.
type Status interface {
	// Write has it be another than it was; only: unless somebody has changed the claim.
	Write(ctx context.Context, was, is *v1.PersistentVolumeClaim, only bool) (*v1.PersistentVolumeClaim, error)
}

// Events records events; *event.Recorder has it.
type Events interface {
	Pod(pod *v1.Pod, eventType, reason, message string)
	Claim(claim *v1.PersistentVolumeClaim, eventType, reason, message string)
}

// Config of Volumes.
type Config struct {
	// Again is how often a claim is read while its volume is used, at most half as long
	// again; zero means a minute.
	Again time.Duration
	// Soon is how soon that is after the claim wanted another size, at first; zero means
	// 5 s.
	Soon time.Duration
	// Timeout of one look at a claim, with all that comes of it; zero means 3 min.
	Timeout time.Duration
}

// Deps are what Volumes need.
type Deps struct {
	Claims Claims
	Status Status
	Events Events
}

// Volume is one of a pod that may grow.
type Volume struct {
	Pod *v1.Pod
	// Claim is its name in the pod's namespace.
	Claim string
	// ReadOnly: the pod only reads it.
	ReadOnly bool
	// Grow has the volume grown that the pod has. The error may be an Error.
	Grow func(ctx context.Context, size resource.Quantity) error
}

// Kind of an Error.
type Kind int

const (
	// Away: the driver is not there to be asked.
	Away Kind = iota + 1
	// Unsupported: the driver does not grow volumes on nodes.
	Unsupported
	// InUse: the driver does not grow a volume that is in use.
	InUse
	// Infeasible: the driver will never give the volume that size.
	Infeasible
	// Uncertain: the volume may be growing all the same.
	Uncertain
)

// Error is one whose kind matters; others are final.
type Error struct {
	Kind Kind
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Volumes are those of claims that pods of the node use. Safe for concurrent use.
type Volumes struct {
	cfg  Config
	deps Deps

	life context.Context // ends with Run
	end  context.CancelFunc
	work sync.WaitGroup

	mu  sync.Mutex
	all map[string]*state // by the names of their PersistentVolumes
}

// state is what is known of a volume that pods use.
type state struct {
	turn  chan struct{}
	users map[types.UID]Volume // guarded by Volumes.mu
	stop  context.CancelFunc   // of who follows its claim; nil for nobody. Guarded by Volumes.mu

	// The rest is for who has the turn.
	size   resource.Quantity // as it was mounted, or grown to
	failed bool              // with a final error
	inUse  bool              // it does not grow while it is in use
}

// New makes Volumes; it starts nothing.
func New(cfg Config, deps Deps) *Volumes {
	if cfg.Again <= 0 {
		cfg.Again = time.Minute
	}
	if cfg.Soon <= 0 {
		cfg.Soon = 5 * time.Second
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 3 * time.Minute
	}
	g := &Volumes{cfg: cfg, deps: deps, all: map[string]*state{}}
	g.life, g.end = context.WithCancel(context.Background())
	return g
}

// Run has volumes grown that are in use, until ctx is done.
func (g *Volumes) Run(ctx context.Context) error {
	<-ctx.Done()
	g.mu.Lock() // nothing more is begun
	g.end()
	g.mu.Unlock()
	g.work.Wait()
	return nil
}

// Leave forgets a pod, whose volumes are being taken down.
func (g *Volumes) Leave(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for pv, st := range g.all {
		if delete(st.users, uid); len(st.users) == 0 {
			if st.stop != nil {
				st.stop()
			}
			delete(g.all, pv)
		}
	}
}

// enter takes a user in and waits for the volume's turn.
func (g *Volumes) enter(ctx context.Context, pv string, v Volume) (*state, error) {
	g.mu.Lock()
	st := g.all[pv]
	if st == nil {
		st = &state{turn: make(chan struct{}, 1), users: map[types.UID]Volume{}}
		g.all[pv] = st
	}
	st.users[v.Pod.UID] = v
	g.mu.Unlock()
	select {
	case st.turn <- struct{}{}:
		return st, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("volume %s is being grown for another pod: %w", pv, context.Cause(ctx))
	}
}
