// Package lease keeps the node's Lease, the heartbeat by which the control
// plane knows that the node is alive. It owns that object and nothing else; it
// must never depend on any other state of the node.
//
// component-helpers has such a controller too; it neither tells when the lease
// was last renewed nor why not, which GetLease answers.
package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/health"
)

const (
	// renewFraction of the duration is between two renewals.
	renewFraction = 4
	// jitter of the interval, so that nodes do not renew in step.
	jitter = 0.04
)

// Config says what the lease is.
type Config struct {
	// NodeName is its name and its holder.
	NodeName string
	// Duration is how long it is good for; whole seconds.
	Duration time.Duration
	// Client writes leases of the namespace kube-node-lease.
	Client client.LeaseInterface
	// Nodes reads the Node before its lease is made: without one, because it is not
	// registered yet or somebody has deleted it, there is none to make.
	Nodes Nodes
	// NodeUID returns the Node's UID, the lease's owner; empty while it is not
	// known. The lease is owned from the next renewal after it is.
	NodeUID func() types.UID
	// OnRepeatedFailure is called when a renewal failed twice in a row: the
	// connections may be dead.
	OnRepeatedFailure func()
	// Health is told whether the lease is renewed.
	Health health.Reporter
}

// Nodes reads the apiserver's Nodes.
type Nodes interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.Node, error)
}

// errNoNode says that there is no Node whose lease could be made.
var errNoNode = errors.New("the apiserver has no Node of this name: it is not registered, or somebody has deleted it")

// Status is how the lease stands.
type Status struct {
	// RenewTime is when it was last renewed; zero is never.
	RenewTime time.Time
	// LastError is why the last attempt failed; empty when it did not.
	LastError string
}

// Keeper keeps the lease. Safe for concurrent use.
type Keeper struct {
	cfg Config

	mu     sync.Mutex
	status Status
}

// New returns a Keeper; it starts nothing.
func New(cfg Config) *Keeper {
	if cfg.Health == nil {
		cfg.Health = health.Discard()
	}
	return &Keeper{cfg: cfg}
}

// Status returns how the lease stands.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// Duration is how long the lease is good for.
func (k *Keeper) Duration() time.Duration { return k.cfg.Duration }

// Run renews at once and then every quarter of the duration, until ctx is done.
func (k *Keeper) Run(ctx context.Context) error {
	log := klog.FromContext(ctx).WithValues("lease", klog.KRef(namespace, k.cfg.NodeName))
	interval := k.cfg.Duration / renewFraction
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: min(7*time.Second, interval), Jitter: 0.2})
	failures := 0
	var held *coordinationv1.Lease
	for {
		renewed, err := k.renew(ctx, held)
		if ctx.Err() != nil {
			return nil
		}
		held = renewed
		wait := time.Duration(float64(interval) * (1 + jitter*rand.Float64()))
		if err != nil {
			if failures++; errors.Is(err, errNoNode) {
				k.withoutNode(log, failures, err)
			} else if failures == 1 {
				log.Error(err, "Lease was not renewed, trying again")
			} else {
				k.failing(err)
			}
			wait = retry.Next()
		} else {
			if failures > 0 {
				log.Info("Lease is renewed again", "failures", failures)
			}
			failures = 0
			retry.Reset()
			k.cfg.Health.Set("lease", true, "")
		}
		k.note(held, err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// withoutNode tells that there is no lease because there is no Node. At the first try
// the Node may be about to be registered.
func (k *Keeper) withoutNode(log klog.Logger, failures int, err error) {
	switch failures {
	case 1:
		log.V(2).Info("No lease is made while there is no Node", "err", err)
	default:
		k.cfg.Health.Set("lease", false, fmt.Sprintf("%v; the lease is made when there is one: restart nodestatus to register it again", err))
	}
}

// failing tells of a renewal that failed again. One that fails once may have met
// another agent's; the next is tried at once.
func (k *Keeper) failing(err error) {
	if k.cfg.OnRepeatedFailure != nil {
		k.cfg.OnRepeatedFailure()
	}
	last := "it never was"
	if at := k.Status().RenewTime; !at.IsZero() {
		last = "it was last at " + at.Format(time.TimeOnly)
	}
	k.cfg.Health.Set("lease", false, fmt.Sprintf("%v: the node's lease is not renewed (%s), and the control plane takes a node whose lease has run out for dead: "+
		"check that the apiserver runs, is reachable and lets this node's credentials write its lease; it is tried again by itself", err, last))
}

const namespace = "kube-node-lease"

func (k *Keeper) note(held *coordinationv1.Lease, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.LastError = ""
	if err != nil {
		k.status.LastError = err.Error()
		return
	}
	if held != nil && held.Spec.RenewTime != nil {
		k.status.RenewTime = held.Spec.RenewTime.Time
	}
}

// renew writes the lease: an update of the one that is held, else of the one
// that is there, else a new one. The returned lease is nil when the next
// renewal has to read it again.
func (k *Keeper) renew(parent context.Context, held *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(parent, k.cfg.Duration/renewFraction)
	defer cancel()
	if held == nil {
		there, err := k.cfg.Client.Get(ctx, k.cfg.NodeName, metav1.GetOptions{})
		err = answer.Object(there, k.cfg.NodeName, err)
		switch {
		case apierrors.IsNotFound(err):
			return k.create(ctx)
		case err != nil:
			return nil, fmt.Errorf("read lease %s/%s: %w", namespace, k.cfg.NodeName, err)
		}
		held = there
	}
	updated, err := k.cfg.Client.Update(ctx, k.filled(held), metav1.UpdateOptions{})
	if err := answer.Object(updated, k.cfg.NodeName, err); err != nil {
		// After a conflict or a deletion the next attempt reads it again; after
		// a timeout too, for the update may have happened.
		return nil, fmt.Errorf("renew lease %s/%s: %w", namespace, k.cfg.NodeName, err)
	}
	return updated, nil
}

// create makes the lease of a Node that is there. Who deletes a Node deletes its lease
// with it, by way of its owner, and one that is made again would stay for ever.
func (k *Keeper) create(ctx context.Context) (*coordinationv1.Lease, error) {
	node, err := k.cfg.Nodes.Get(ctx, k.cfg.NodeName, metav1.GetOptions{})
	err = answer.Object(node, k.cfg.NodeName, err)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("create lease %s/%s: %w", namespace, k.cfg.NodeName, errNoNode)
	case err != nil:
		return nil, fmt.Errorf("create lease %s/%s: read its node: %w", namespace, k.cfg.NodeName, err)
	}
	lease := k.filled(nil)
	lease.OwnerReferences = ownedBy(node.Name, node.UID)
	made, err := k.cfg.Client.Create(ctx, lease, metav1.CreateOptions{})
	if err := answer.Object(made, k.cfg.NodeName, err); err != nil {
		return nil, fmt.Errorf("create lease %s/%s: %w", namespace, k.cfg.NodeName, err)
	}
	return made, nil
}

func ownedBy(node string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}}
}

func (k *Keeper) filled(base *coordinationv1.Lease) *coordinationv1.Lease {
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: k.cfg.NodeName, Namespace: namespace}}
	if base != nil {
		out = base.DeepCopy()
	}
	seconds := int32(k.cfg.Duration / time.Second) //nolint:gosec // Configured, under a day.
	now := metav1.NowMicro()
	out.Spec.HolderIdentity, out.Spec.LeaseDurationSeconds, out.Spec.RenewTime = &k.cfg.NodeName, &seconds, &now
	if uid := k.cfg.NodeUID(); uid != "" {
		out.OwnerReferences = ownedBy(k.cfg.NodeName, uid)
	}
	return out
}
