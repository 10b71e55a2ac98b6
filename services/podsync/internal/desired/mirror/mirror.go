// Package mirror owns the mirror pods: the objects that show the static pods
// of this node in the apiserver. It must never stop or start a static pod, and
// never touch a pod that is not a mirror.
package mirror

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/podsync/internal/desired/source"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Config of a Keeper.
type Config struct {
	// NodeName is this node's name.
	NodeName string
	// RequestTimeout bounds one request; 10 s when zero.
	RequestTimeout time.Duration
}

// Deps is what a Keeper is given.
type Deps struct {
	// Client is nil when there is no apiserver: nothing is mirrored.
	Client kubernetes.Interface
	// Node returns this node's object, the owner of the mirrors; an error while
	// it is not known. It must not block long.
	Node func(ctx context.Context) (*v1.Node, error)
	// OnChange is told when a static pod's mirror has changed; may be nil, must
	// not block. It is called without a lock held.
	OnChange func(static types.UID)
	// Health may be nil; "mirror pods" is reported.
	Health health.Reporter
}

// Keeper keeps one mirror per static pod. It implements source.Mirrors. Safe
// for concurrent use, before Run too.
type Keeper struct {
	cfg  Config
	deps Deps

	// reporting is held while health is told.
	reporting sync.Mutex

	mu           sync.Mutex
	ctx          context.Context // set while Run runs
	idle         sync.WaitGroup
	names        map[types.NamespacedName]*entry
	statics      map[types.UID]types.NamespacedName
	mirrors      map[types.UID]types.NamespacedName
	staticReady  bool
	mirrorsReady bool
	// known: the pods that run though no source knows them are in orphans.
	known   bool
	orphans map[types.UID]bool
}

var _ source.Mirrors = (*Keeper)(nil)

// entry is one full name. Guarded by Keeper.mu.
type entry struct {
	static *v1.Pod
	// leaving: static is not wanted any more, but it has not ended; next takes
	// its place then, and may be nil.
	leaving bool
	next    *v1.Pod
	mirror  *v1.Pod
	// gone is the mirror that was deleted last: a late word of it is ignored.
	gone types.UID
	// outlived is the mirror that cannot show what the static pod has become.
	outlived types.UID
	busy     bool
	tries    int
	retry    *time.Timer
	// problem is what was logged last.
	problem string
}

// New returns a Keeper.
func New(cfg Config, deps Deps) *Keeper {
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = 10 * time.Second
	}
	if deps.OnChange == nil {
		deps.OnChange = func(types.UID) {}
	}
	if deps.Health == nil {
		deps.Health = health.Discard()
	}
	return &Keeper{
		cfg: cfg, deps: deps,
		names:   map[types.NamespacedName]*entry{},
		statics: map[types.UID]types.NamespacedName{},
		mirrors: map[types.UID]types.NamespacedName{},

		orphans: map[types.UID]bool{},
	}
}

// Run creates and deletes mirrors until ctx is done.
func (k *Keeper) Run(ctx context.Context) error {
	if k.deps.Client != nil {
		k.mu.Lock()
		k.ctx = ctx
		k.lookAtAllLocked()
		k.mu.Unlock()
	}
	<-ctx.Done()
	k.mu.Lock()
	k.ctx = nil
	for _, e := range k.names {
		e.stopRetry()
	}
	k.mu.Unlock()
	k.idle.Wait()
	return nil
}

// NodeChanged tries at once what failed for want of the Node object.
func (k *Keeper) NodeChanged() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lookAtAllLocked()
}

func (k *Keeper) lookAtAllLocked() {
	for name, e := range k.names {
		e.tries = 0
		k.lookLocked(name, e)
	}
}

func (k *Keeper) entryLocked(name types.NamespacedName) *entry {
	e := k.names[name]
	if e == nil {
		e = &entry{}
		k.names[name] = e
	}
	return e
}

func fullName(pod *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// SetStatic implements source.Mirrors.
func (k *Keeper) SetStatic(pod *v1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name := fullName(pod)
	e := k.entryLocked(name)
	k.statics[pod.UID] = name
	if e.static != nil && e.static.UID != pod.UID {
		e.setNext(k, pod) // they run one after the other
		return
	}
	e.setNext(k, nil)
	e.static, e.leaving = pod, false
	e.tries = 0
	k.lookLocked(name, e)
}

// setNext makes pod the one that follows a static pod that is leaving.
func (e *entry) setNext(k *Keeper, pod *v1.Pod) {
	if e.next != nil && (pod == nil || pod.UID != e.next.UID) {
		delete(k.statics, e.next.UID)
	}
	e.next = pod
	e.leaving = e.leaving || pod != nil
}

// RemoveStatic implements source.Mirrors. The mirror stays until Ended.
func (k *Keeper) RemoveStatic(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, ok := k.statics[uid]
	if !ok {
		return
	}
	e := k.entryLocked(name)
	if e.static != nil && e.static.UID == uid {
		e.leaving = true
		return
	}
	e.setNext(k, nil)
}

// Ended tells that nothing of the pod with this UID runs any more. Of a static
// pod that is not wanted any more the mirror goes now.
func (k *Keeper) Ended(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.orphans[uid] {
		delete(k.orphans, uid)
		k.lookAtAllLocked()
	}
	name, ok := k.statics[uid]
	if !ok {
		return
	}
	e := k.entryLocked(name)
	if e.static == nil || e.static.UID != uid || !e.leaving {
		return
	}
	delete(k.statics, uid)
	e.static, e.next, e.leaving = e.next, nil, false
	e.tries = 0
	k.lookLocked(name, e)
}

// Orphan tells of a pod that runs though no source knows it: if it was a
// static pod, its mirror stays until it has Ended.
func (k *Keeper) Orphan(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.orphans[uid] = true
}

// AllKnown tells that every Orphan of a previous run was named.
func (k *Keeper) AllKnown() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known = true
	k.lookAtAllLocked()
}

// StaticReady implements source.Mirrors: once AllKnown too, a mirror without a
// static pod is an orphan.
func (k *Keeper) StaticReady() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.staticReady = true
	k.lookAtAllLocked()
}

// MirrorsReady implements source.Mirrors: from now on a static pod without a
// mirror needs one.
func (k *Keeper) MirrorsReady() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mirrorsReady = true
	k.lookAtAllLocked()
}

// SetMirror implements source.Mirrors.
func (k *Keeper) SetMirror(pod *v1.Pod) {
	k.tell(k.setMirror(pod))
}

// setMirror returns the static pod whose mirror has changed, or "".
func (k *Keeper) setMirror(pod *v1.Pod) types.UID {
	k.mu.Lock()
	defer k.mu.Unlock()
	name := fullName(pod)
	e := k.entryLocked(name)
	if e.gone == pod.UID {
		return ""
	}
	if e.mirror != nil && e.mirror.UID != pod.UID {
		delete(k.mirrors, e.mirror.UID)
	}
	e.mirror = pod
	k.mirrors[pod.UID] = name
	k.lookLocked(name, e)
	return e.staticUID()
}

// RemoveMirror implements source.Mirrors.
func (k *Keeper) RemoveMirror(uid types.UID) {
	k.tell(k.removeMirror(uid))
}

func (k *Keeper) removeMirror(uid types.UID) types.UID {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, ok := k.mirrors[uid]
	if !ok {
		return ""
	}
	delete(k.mirrors, uid)
	e := k.entryLocked(name)
	e.mirror, e.gone = nil, uid
	k.lookLocked(name, e)
	return e.staticUID()
}

func (k *Keeper) tell(static types.UID) {
	if static != "" {
		k.deps.OnChange(static)
	}
}

func (e *entry) staticUID() types.UID {
	if e.static == nil {
		return ""
	}
	return e.static.UID
}

// Mirror returns the mirror of a static pod; false while there is none that
// matches it. The pod is shared and must not be changed.
func (k *Keeper) Mirror(static types.UID) (*v1.Pod, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, ok := k.statics[static]
	if !ok {
		return nil, false
	}
	e := k.names[name]
	if e.static == nil || e.static.UID != static || !e.shown() {
		return nil, false
	}
	return e.mirror, true
}

// Renew replaces the mirror of a static pod by a new one: the apiserver does not
// let the old one show what the pod has become. Of other pods it does nothing.
func (k *Keeper) Renew(static types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, ok := k.statics[static]
	if !ok {
		return
	}
	e := k.names[name]
	if e.mirror == nil || e.leaving || e.static == nil || e.static.UID != static {
		return
	}
	e.outlived = e.mirror.UID
	k.lookLocked(name, e)
}

// StaticUID returns the UID of the static pod that a mirror's UID stands for.
func (k *Keeper) StaticUID(mirror types.UID) (types.UID, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, ok := k.mirrors[mirror]
	if !ok {
		return "", false
	}
	e := k.names[name]
	if e.static == nil || !e.shown() {
		return "", false
	}
	return e.static.UID, true
}

// shown says whether the mirror is the right one for the static pod.
func (e *entry) shown() bool {
	return e.mirror != nil && e.mirror.DeletionTimestamp == nil && e.mirror.UID != e.outlived &&
		e.mirror.Annotations[podutil.AnnotationMirror] == e.static.Annotations[podutil.AnnotationHash]
}
