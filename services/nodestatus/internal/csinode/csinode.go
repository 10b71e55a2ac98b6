// Package csinode tells the control plane of the CSI drivers of this node: in the
// node's CSINode, and on its Node by what they call it and where it is for them.
//
// It owns the CSINode, and on the Node the annotation with the drivers' names for it. It
// must never take back what it does not know of: a driver that has not registered itself
// with a podsync that has just started is as it was.
// Source: https://kubernetes-csi.github.io/docs/csi-node-object.html, as the kubelet
// writes it.
package csinode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	storage "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/wake"
)

// Driver is a CSI driver as podsync knows it.
type Driver struct {
	// Name of the driver, and NodeID, its name of this node.
	Name, NodeID string
	// Gone: it is registered no more.
	Gone bool
	// Topology are labels of where the node is.
	Topology map[string]string
	// MaxVolumes is how many of its volumes the node can have; zero when not said.
	MaxVolumes int64
}

// Config of a Keeper.
type Config struct {
	// NodeName is the Node's, and the CSINode's.
	NodeName string
	// Nodes and CSINodes write them.
	Nodes    core.NodeInterface
	CSINodes storage.CSINodeInterface
	// NodeUID returns the Node's UID, the CSINode's owner; empty while it is not known.
	NodeUID func() types.UID
	// Initialized is told why the CSINode is not there yet, and once it is, the empty
	// text; may be nil.
	Initialized func(why string)
	// Health is told when they cannot be written.
	Health health.Reporter
	// Timeout of each request; zero means 10 s.
	Timeout time.Duration
	// Again is how often it is looked whether the CSINode is there still, at most half as
	// long again; zero means 5 min. A node may not watch its CSINode, and without that no
	// volume is attached to it.
	Again time.Duration
}

// dependency is what health calls it.
const dependency = "CSI drivers of the node"

// How soon it is looked whether the Node is registered, and whether it is another by
// now, whose CSINode is another, too. The apiserver is not asked for that.
const (
	noNode    = 50 * time.Millisecond
	otherNode = 10 * time.Second
)

// Keeper keeps both current. Safe for concurrent use.
type Keeper struct {
	cfg  Config
	wake wake.Signal

	initialized types.UID // the Node whose CSINode is there; Run's own

	mu      sync.Mutex
	drivers map[string]Driver
}

// NotInitialized is what a Node says that has no CSINode yet.
const NotInitialized = "CSINode is not yet initialized"

// New returns a Keeper that knows no driver.
func New(cfg Config) *Keeper {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Again <= 0 {
		cfg.Again = 5 * time.Minute
	}
	return &Keeper{cfg: cfg, wake: wake.New(), drivers: map[string]Driver{}}
}

// Tell tells of drivers that are new or changed; whole: of all that are known of.
func (k *Keeper) Tell(drivers []Driver, whole bool) {
	k.mu.Lock()
	if whole {
		clear(k.drivers)
	}
	for _, d := range drivers {
		k.drivers[d.Name] = d
	}
	k.mu.Unlock()
	k.wake.Set()
}

// known are the drivers, in the order of their names.
func (k *Keeper) known() []Driver {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]Driver, 0, len(k.drivers))
	for _, name := range slices.Sorted(maps.Keys(k.drivers)) {
		out = append(out, k.drivers[name])
	}
	return out
}

// Run writes until ctx is done.
func (k *Keeper) Run(ctx context.Context) error {
	retry := backoff.New(backoff.Config{Initial: 200 * time.Millisecond, Max: time.Minute, Jitter: 0.2})
	failing := false
	for ctx.Err() == nil {
		uid := k.cfg.NodeUID()
		if uid != k.initialized {
			k.tell(NotInitialized)
		}
		err := k.write(ctx, uid)
		if ctx.Err() != nil {
			break
		}
		var wait time.Duration
		switch {
		case errors.Is(err, errNoNode):
			wait = noNode
		case err != nil:
			wait = retry.Next()
			k.cfg.Health.Set(dependency, false, err.Error())
			if uid != k.initialized {
				k.tell(fmt.Sprintf("failed to initialize CSINode: %v", err))
			}
		default:
			retry.Reset()
			k.cfg.Health.Set(dependency, true, "")
		}
		if (err != nil) != failing && !errors.Is(err, errNoNode) {
			failing = err != nil
			klog.FromContext(ctx).Info("The CSINode and the drivers' words on the Node", "failing", failing, "err", err)
		}
		if err != nil {
			k.wait(ctx, wait, uid)
			continue
		}
		for k.wait(ctx, k.cfg.Again+rand.N(k.cfg.Again/2), uid) && k.stands(ctx, uid) {
		}
	}
	return nil
}

// stands says whether the CSINode is there, as far as is known.
func (k *Keeper) stands(ctx context.Context, uid types.UID) bool {
	there, err := k.readCSINode(ctx)
	return err != nil || there != nil && ownedBy(there, k.cfg.NodeName, uid)
}

// tell says why the CSINode is not there.
func (k *Keeper) tell(why string) {
	if k.cfg.Initialized != nil {
		k.cfg.Initialized(why)
	}
}

// wait returns when there is news, when the Node is another, and after a time: true then.
func (k *Keeper) wait(ctx context.Context, most time.Duration, uid types.UID) bool {
	look := time.NewTicker(otherNode)
	defer look.Stop()
	over := time.After(most)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-k.wake:
			return false
		case <-over:
			return true
		case <-look.C:
			if k.cfg.NodeUID() != uid {
				return false
			}
		}
	}
}

// errNoNode says that there is no Node yet.
var errNoNode = errors.New("the Node is not registered yet")

// write makes both as they should be. What comes is on the Node before it is in the
// CSINode, by which it is used, and what goes the other way round.
func (k *Keeper) write(ctx context.Context, uid types.UID) error {
	if uid == "" {
		return errNoNode
	}
	drivers := k.known()
	usable, clash, err := k.tellNode(ctx, drivers)
	if refused(err) {
		usable, clash, err = k.tellEach(ctx, drivers)
	}
	if err == nil {
		err = k.writeCSINode(ctx, uid, usable)
	}
	if refused(err) {
		var worse error
		worse, err = k.writeEach(ctx, uid, usable)
		clash = errors.Join(clash, worse)
	}
	if err == nil && k.initialized != uid {
		k.initialized = uid
		k.tell("")
	}
	if err == nil {
		err = k.forgetOnNode(ctx, drivers)
	}
	return errors.Join(clash, err)
}

// names are the drivers that stand in a CSINode.
func names(n *storagev1.CSINode) (out []string) {
	for i := range n.Spec.Drivers {
		out = append(out, n.Spec.Drivers[i].Name)
	}
	return out
}

func (k *Keeper) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, k.cfg.Timeout)
}

// failed says what could not be done.
func (k *Keeper) failed(what string, err error) error {
	return fmt.Errorf("%s %s: %w", what, k.cfg.NodeName, err)
}
