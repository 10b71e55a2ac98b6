// Package nodeinfo follows the Node object of this machine and the machine's
// addresses, and says what pods may use of it.
//
// It owns the newest Node that is known, whether the watch brought it or a read
// of its own. It must never write to the apiserver, and never decide about a pod:
// whoever does asks here, and is told when the answer may be another.
package nodeinfo

import (
	"context"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/wake"
)

// Config says which node this is.
type Config struct {
	// Name is the node's; IP is --node-ip, and empty finds the address.
	Name, IP string
	// ExternalCloud: a controller of the cloud writes the addresses.
	ExternalCloud bool
	// PodCIDR is the pods' network where there is no Node object.
	PodCIDR string
	// MaxPods, and what is kept from pods, count where there is no Node object.
	MaxPods                               int64
	ReservedMilliCPU, ReservedMemoryBytes int64
	// BootID is the kernel's name for the machine's present start.
	BootID string
}

// Objects has the Node as the watch brought it; *objects.Store has it.
type Objects interface {
	// KnownNode never waits; nil before the Node is known.
	KnownNode() *v1.Node
}

// Pods decide anew; *worker.Registry has it.
type Pods interface {
	// Recheck asks all that waits for the node again. It must not block.
	Recheck()
}

// Deps are what a Node is given; Client is nil standalone, HostIPs may be nil.
type Deps struct {
	Client  kubernetes.Interface
	Objects Objects
	Pods    Pods
	Health  health.Reporter
	// HostIPs are the machine's addresses where they are not to be looked for.
	HostIPs func() []string
}

// Node is what is known of this node. Safe for concurrent use.
type Node struct {
	cfg  Config
	deps Deps

	object    atomic.Pointer[v1.Node]
	addresses atomic.Pointer[[]string]
	// Whether addresses were looked for, and whether they were found where the Node
	// object was known.
	addressesSought, addressesKnown atomic.Bool
	// stale asks for the object to be read anew; read is when that was done last.
	stale atomic.Bool
	read  atomic.Pointer[time.Time]
	// restored: what comes next may be of an older version, and is what is there.
	restored atomic.Bool

	// What wakes FollowObject, ReadAnew and FollowAddresses.
	objectChanged, readWanted, addressesChanged wake.Signal

	changed, allocatableChanged []func()
}

// New returns a Node of which nothing is known yet.
func New(cfg Config, deps Deps) *Node {
	return &Node{cfg: cfg, deps: deps, objectChanged: wake.New(), readWanted: wake.New(), addressesChanged: wake.New()}
}

// Subscribe has f called whenever a newer object is known, and SubscribeAllocatable
// when it also says something else of what pods may use. Call both before anything
// runs; f must not block.
func (n *Node) Subscribe(f func()) { n.changed = append(n.changed, f) }

// SubscribeAllocatable is described with Subscribe.
func (n *Node) SubscribeAllocatable(f func()) {
	n.allocatableChanged = append(n.allocatableChanged, f)
}

// Object is the newest Node that is known; nil for none.
func (n *Node) Object() *v1.Node { return n.object.Load() }

// Outdated says whether the object may be older than this moment: the apiserver has
// not been asked for it since.
func (n *Node) Outdated(than time.Time) bool {
	read := n.read.Load()
	return n.object.Load() != nil && n.deps.Client != nil && (read == nil || read.Before(than))
}

// ReadSoon asks for the object to be read from the apiserver; it returns at once,
// and Pods decide anew when that is done.
func (n *Node) ReadSoon() {
	n.stale.Store(true)
	n.readWanted.Set()
}

// ObjectChanged tells that the watch brought the Node. It returns at once.
func (n *Node) ObjectChanged() { n.objectChanged.Set() }

// Restored tells that etcd was restored from an older state: the versions begin again
// below those that were seen. It returns at once.
func (n *Node) Restored() {
	n.restored.Store(true)
	n.objectChanged.Set() // the watch may have brought the Node before this was known
}

// FollowObject takes over what the watch brings until ctx is done. It never waits for
// the apiserver, which may be one of the pods that wait for what is told from here.
func (n *Node) FollowObject(ctx context.Context) error {
	for ctx.Err() == nil {
		if known := n.deps.Objects.KnownNode(); known != nil && n.store(known) {
			n.deps.Pods.Recheck()
		}
		select {
		case <-ctx.Done():
		case <-n.objectChanged:
		}
	}
	return nil
}

// ReadAnew reads the Node object from the apiserver itself when admission wants
// it newer than the watch may have it. Who asks in the meantime waits with it:
// each try wakes every pod that asks, and they would ask again at once.
func (n *Node) ReadAnew(ctx context.Context) error {
	log := klog.FromContext(ctx)
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.2})
	for ctx.Err() == nil {
		if !n.stale.Swap(false) || n.deps.Client == nil {
			select {
			case <-ctx.Done():
			case <-n.readWanted:
			}
			continue
		}
		if err := n.readOnce(ctx); err != nil && ctx.Err() == nil {
			log.Info("Could not read this node's object anew; a pod that does not match it waits", "err", err.Error())
			n.stale.Store(true)
			_ = retry.Wait(ctx)
			continue
		}
		retry.Reset()
	}
	return nil
}

func (n *Node) readOnce(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	object, err := n.deps.Client.CoreV1().Nodes().Get(ctx, n.cfg.Name, metav1.GetOptions{})
	if err := answer.Object(object, n.cfg.Name, err); err != nil {
		return err
	}
	n.store(object)
	n.read.Store(&began)
	n.deps.Pods.Recheck()
	return nil
}

// store keeps the newest of what the watch and a read of our own gave, and
// says whether this one is news.
func (n *Node) store(object *v1.Node) (news bool) {
	for {
		old := n.object.Load()
		if old == object {
			return false
		}
		if old != nil && old.UID == object.UID {
			if order, err := resourceversion.CompareResourceVersion(object.ResourceVersion, old.ResourceVersion); err == nil && (order < 0 && !n.restored.Load() || order == 0 && object.ResourceVersion != "") {
				return false
			}
		}
		if n.object.CompareAndSwap(old, object) {
			n.restored.Store(false)
			n.tell(old, object)
			return true
		}
	}
}

// tell tells of a newer object.
func (n *Node) tell(old, now *v1.Node) {
	n.addressesChanged.Set()
	if old == nil || !equality.Semantic.DeepEqual(old.Status.Allocatable, now.Status.Allocatable) {
		for _, f := range n.allocatableChanged {
			f()
		}
	}
	for _, f := range n.changed {
		f()
	}
}
