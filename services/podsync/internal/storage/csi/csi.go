// Package csi makes the volumes of CSI drivers: it knows which drivers are registered
// on this node, and asks them to publish and unpublish volumes in pods' directories.
//
// It owns what is at and below <root>/pods/<uid>/volumes/kubernetes.io~csi and
// <root>/plugins/kubernetes.io/csi. It must never delete what is in a volume, which is
// its driver's. What was asked for is written beside the volume before it is asked for,
// so that whoever comes after a crash can take it back. A driver that hangs holds up its
// own volumes only.
//
// A volume of a claim is one for the whole node: one operation with it at a time, staged
// for its first pod and unstaged after its last. Which pods have it is read from the disk
// each time.
// Source: https://github.com/container-storage-interface/spec/blob/master/spec.md and
// https://kubernetes-csi.github.io/docs/, with the kubelet's words in errors.
package csi

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/wake"
	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi/peer"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// Objects are the API objects that say how a volume is published.
type Objects interface {
	CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	// VolumeAttachment is read for a pod of a namespace.
	VolumeAttachment(ctx context.Context, uid types.UID, namespace, name string) (*storagev1.VolumeAttachment, error)
}

// Node is the own Node object; *nodeinfo.Node has it.
type Node interface {
	// Object is the newest that is known; nil before any is.
	Object() *v1.Node
}

// Tokens gives service-account tokens.
type Tokens interface {
	Get(ctx context.Context, r serviceaccount.Request) (serviceaccount.Token, error)
}

// Pods are worked on anew.
type Pods interface {
	// ObjectsChanged tells that what these pods wait for is there. It returns at once.
	ObjectsChanged(uids []types.UID)
}

// Config of Volumes.
type Config struct {
	// RootDir is the node agent's root, e.g. /var/lib/kubelet.
	RootDir string
	// NodeName is the node's, which stands beside each volume.
	NodeName string
	// Epoch is this process's, for those who follow the drivers.
	Epoch uint64
	// NoController: nobody attaches volumes to the node.
	NoController bool
	// Standalone: there is no cluster that could.
	Standalone bool
	// SELinuxMount is the gate: volumes of claims are mounted with SELinux labels whatever
	// their access modes.
	SELinuxMount bool
	// Timeout of one operation with a driver; zero means 2 min.
	Timeout time.Duration
	// Again is how soon a volume is published again whose driver wants that
	// (requiresRepublish), at most half as long again; zero means a minute.
	Again time.Duration
}

// Deps are what Volumes need.
type Deps struct {
	Objects Objects
	Tokens  Tokens
	Node    Node
	Mounter mount.Mounter
	// Apart does ownership.Calls; nil where nobody is asked about a volume who may not
	// answer.
	Apart ownership.Apart
	// SELinux is the node's policy; nil is none.
	SELinux selinux.Policy
	// Pods may be nil.
	Pods Pods
	// Events may be nil.
	Events ownership.Events
	// Stale keeps which volumes could not be published again; may be nil.
	Stale *volume.Stale
	// Cluster may be nil: drivers are asked once for how many volumes the node can have.
	Cluster Cluster
	// Metrics may be nil.
	Metrics *metrics.Metrics
	// Disks may be nil.
	Disks Disks
	// Dial returns a connection with the driver at a socket; nil is peer.Dial.
	Dial func(socket string) (peer.Conn, error)
}

// Volumes are those of all CSI drivers. It is a volume.Driver, and the plugins.Handler
// of CSI drivers. Safe for concurrent use.
type Volumes struct {
	cfg     Config
	deps    Deps
	drivers *drivers

	life context.Context // ends with Run
	end  context.CancelFunc
	work sync.WaitGroup // what keeps volumes published, and unstages them

	inUse inUse

	rooms rooms

	mu      sync.Mutex
	volumes map[volumeID]*state
	// settling are the volumes of which somebody looks whether they are to be unstaged,
	// each with what has it looked at anew.
	settling map[volumeID]wake.Signal
	// unsettled are those of them that could not be, each with what was the last to fail.
	unsettled map[volumeID]Unsettled
}

// volumeID names a volume on the node, whatever pods have it.
type volumeID struct{ driver, handle string }

// state is what is known of a volume beside what lies on the disk.
type state struct {
	// turn lets one operation with the volume run at a time.
	turn chan struct{}
	// users hold the state or wait for it; with the last one it goes. looking: it will be
	// looked whether it is to be published again and again. Guarded by Volumes.mu.
	users   int
	looking bool

	// The rest is for who has the turn. staged are the places where it is, by this
	// process: two PersistentVolumes may name one volume, as a filesystem and a device.
	// One that is false was to be unstaged, which failed: nobody knows what is there.
	staged map[string]bool
	// migrated: this process has staged it as a volume of before CSI.
	migrated bool
	// published are the places where it is as it should be, by this process.
	published map[string]*placed
	// labels are with which SELinux labels pods have it, by the places of published.
	labels selinux.Labels
}

// placed is a volume in one place.
type placed struct {
	// wanted is what it was published by; of no pod once it was to be taken down.
	wanted wanted
	// end ends its being published again and again; nil when it is not.
	end context.CancelFunc
}

// New makes Volumes; it starts nothing.
func New(cfg Config, deps Deps) *Volumes {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 2 * time.Minute
	}
	if cfg.Again <= 0 {
		cfg.Again = time.Minute
	}
	if deps.Dial == nil {
		deps.Dial = peer.Dial
	}
	c := &Volumes{cfg: cfg, deps: deps, volumes: map[volumeID]*state{}, settling: map[volumeID]wake.Signal{}, unsettled: map[volumeID]Unsettled{}, inUse: newInUse(cfg.Epoch)}
	c.drivers = newDrivers(cfg, func(driver string, uids []types.UID) {
		if deps.Pods != nil && len(uids) > 0 {
			deps.Pods.ObjectsChanged(uids)
		}
		c.inUse.driverSaid() // before it was registered nobody watched what the cluster says of it
		c.republish(driver)
		c.settleAgain(driver)
	})
	c.drivers.forgotten = deps.Metrics.ForgetCSI
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// Run looks at what is on the disk, publishes volumes again whose drivers want that, and
// unstages those that no pod has, until ctx is done.
func (c *Volumes) Run(ctx context.Context) error {
	c.reconstruct(ctx)
	<-ctx.Done()
	c.mu.Lock() // nothing more is begun
	c.end()
	c.mu.Unlock()
	c.work.Wait()
	c.rooms.close()
	c.drivers.close()
	return nil
}

// begin has something done beside, unless Run has ended.
func (c *Volumes) begin(do func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.beginLocked(do)
}

func (c *Volumes) beginLocked(do func()) bool {
	if c.life.Err() != nil {
		return false
	}
	c.work.Go(do)
	return true
}

// enter waits for a volume's turn and returns its state with what ends the turn.
func (c *Volumes) enter(ctx context.Context, id volumeID) (*state, func(), error) {
	st := c.hold(id)
	select {
	case st.turn <- struct{}{}:
	case <-ctx.Done():
		c.leave(id, st, false)
		return nil, nil, context.Cause(ctx)
	}
	return st, func() { c.leave(id, st, true) }, nil
}

// enterNow is enter that does not wait: the state is nil while others have their turn.
func (c *Volumes) enterNow(id volumeID) (*state, func()) {
	st := c.hold(id)
	select {
	case st.turn <- struct{}{}:
		return st, func() { c.leave(id, st, true) }
	default:
		c.leave(id, st, false)
		return nil, nil
	}
}

// hold returns a volume's state, which stays until it is left.
func (c *Volumes) hold(id volumeID) *state {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.volumes[id]
	if st == nil {
		st = &state{turn: make(chan struct{}, 1), published: map[string]*placed{}, staged: map[string]bool{}, labels: selinux.Labels{}}
		c.volumes[id] = st
	}
	st.users++
	return st
}

// leave gives up a hold on a state. One that says nothing is dropped with the last.
func (c *Volumes) leave(id volumeID, st *state, turn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st.users--
	if st.users == 0 && len(st.staged) == 0 && len(st.published) == 0 { // nobody else is there who could change it
		delete(c.volumes, id)
	}
	if turn {
		<-st.turn
	}
}

// forget ends what publishes a volume again in one place; whole: it is not there any more.
func (st *state) forget(dir string, whole bool) {
	if p := st.published[dir]; p != nil {
		if p.end != nil {
			p.end()
		}
		st.published[dir] = &placed{}
	}
	if whole {
		delete(st.published, dir)
		delete(st.labels, dir)
	}
}
