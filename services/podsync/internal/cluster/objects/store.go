package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/services/podsync/internal/cluster/namespacelimit"
)

// ErrStandalone says that there is no apiserver to read from.
var ErrStandalone = errors.New("the node runs standalone, without an apiserver; use only what the manifest itself holds")

// Kind is the kind of an object that a pod can refer to.
type Kind string

// The kinds that are kept.
const (
	ConfigMap    Kind = "configmap"
	Secret       Kind = "secret"
	RuntimeClass Kind = "runtimeclass"
	Node         Kind = "node"
	CSIDriver    Kind = "csidriver"
)

// ClusterTrustBundle is a kind of which all are kept together, for a pod may choose them
// by their labels; its Key has no name.
const ClusterTrustBundle Kind = "clustertrustbundle"

// PodCertificateRequest is a kind of which all of this node are kept together; its Key
// has no name.
const PodCertificateRequest Kind = "podcertificaterequest"

// The kinds that are read when they are needed, and awaited when they are not yet as
// they should be: a node may get those of its pods, and neither list nor watch any.
const (
	PersistentVolumeClaim Kind = "persistentvolumeclaims"
	PersistentVolume      Kind = "persistentvolumes"
	VolumeAttachment      Kind = "volumeattachments"
)

// Key names one object; Namespace is empty for kinds without one.
type Key struct {
	Kind      Kind
	Namespace string
	Name      string
}

// String is the key for people, e.g. configmap "ns/name".
func (k Key) String() string {
	if k.Kind == ClusterTrustBundle || k.Kind == PodCertificateRequest {
		return string(k.Kind) + "s"
	}
	if k.Namespace == "" {
		return fmt.Sprintf("%s %q", k.Kind, k.Name)
	}
	return fmt.Sprintf("%s %q", k.Kind, k.Namespace+"/"+k.Name)
}

// Config of a Store.
type Config struct {
	// NodeName is the own node's name; empty when the Node object is not wanted.
	NodeName string
	// TrustBundles has the trust bundles watched that pods refer to.
	TrustBundles bool
	// Certificates has the requests for certificates watched of pods that want any.
	Certificates bool
	// ReadTimeout is how long a read waits for the first answer of the
	// apiserver; zero means 10 s.
	ReadTimeout time.Duration
}

// Deps are what a Store needs.
type Deps struct {
	// Client is nil in standalone mode; every read then fails with ErrStandalone.
	Client kubernetes.Interface
}

// Store holds the objects. All methods are safe for concurrent use; what they
// return is shared and must not be changed.
type Store struct {
	cfg    Config
	client kubernetes.Interface

	services *serviceList
	asking   namespacelimit.Pool // for lists and watches
	reading  namespacelimit.Pool // for single reads

	mu           sync.Mutex
	run          context.Context    // nil until Run
	stopServices context.CancelFunc // ends the watch of now; nil before the first
	watches      sync.WaitGroup
	entries      map[Key]*entry
	held         map[string]int // entries by namespace
	pods         map[types.UID]map[Key]struct{}
	subscribers  []func(Key, []types.UID)
	waits        map[string]*waits // by namespace
	reread       map[types.UID]map[Key]reread
}

// entry is one object; its fields are guarded by Store.mu.
type entry struct {
	holders map[types.UID]struct{}
	pinned  bool               // held by the node itself
	stop    context.CancelFunc // ends the watch; nil when none was started
	synced  chan struct{}      // closed by the first answer
	known   bool               // synced is closed
	object  runtime.Object     // nil when it does not exist
	err     error              // of the last failed attempt
	away    chan struct{}      // closed by the first attempt that got no answer
	isAway  bool               // away is closed
	missed  bool               // a read gave up before the first answer
}

// New makes a Store; it starts nothing. Reads work before Run (they go to the
// apiserver directly), watches start with Run.
func New(cfg Config, deps Deps) *Store {
	if cfg.ReadTimeout <= 0 {
		cfg.ReadTimeout = 10 * time.Second
	}
	return &Store{
		cfg: cfg, client: deps.Client, services: newServiceList(),
		entries: map[Key]*entry{}, held: map[string]int{}, pods: map[types.UID]map[Key]struct{}{},
		waits: map[string]*waits{}, reread: map[types.UID]map[Key]reread{},
	}
}

// Run keeps the watches until ctx is done. In standalone mode it only waits.
func (s *Store) Run(ctx context.Context) error {
	if s.client == nil {
		<-ctx.Done()
		return nil
	}
	s.mu.Lock()
	s.run = ctx
	if s.cfg.NodeName != "" {
		s.entryForLocked(Key{Kind: Node, Name: s.cfg.NodeName}).pinned = true
	}
	for key, e := range s.entries {
		s.startWatchLocked(key, e)
	}
	for namespace, w := range s.waits {
		s.startAskingLocked(namespace, w)
	}
	s.watches.Add(1)
	s.mu.Unlock()
	s.services.started.Store(true)
	go func() {
		defer s.watches.Done()
		s.followServices(ctx)
	}()
	<-ctx.Done()
	// From here on Hold starts nothing more, so that Wait cannot race with Add.
	s.mu.Lock()
	s.run = nil
	s.mu.Unlock()
	s.watches.Wait()
	return nil
}

// mostWatched is how many objects of one pod are watched. Others are read when they
// are needed, and nobody is told when they change.
const mostWatched = 1000

// mostOfOne is how many objects of one namespace are watched, whichever pods name them:
// a watch takes 40 KiB here and its part at the apiserver, and a name in a spec takes
// twenty bytes. What is said of mostWatched holds of the others, until there is room.
const mostOfOne = 4000

// Hold watches everything that pod refers to, instead of what an earlier Hold
// of the same UID said. Idempotent.
func (s *Store) Hold(pod *v1.Pod) {
	if s.client == nil {
		return
	}
	wanted := first(s.references(pod), mostWatched)
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.pods[pod.UID]
	if len(wanted) == 0 {
		delete(s.pods, pod.UID)
	} else {
		s.pods[pod.UID] = wanted
	}
	for key := range wanted {
		if _, held := before[key]; held {
			continue
		}
		if s.entries[key] == nil && key.Namespace != "" && s.held[key.Namespace] >= mostOfOne {
			delete(wanted, key)
			continue
		}
		e := s.entryForLocked(key)
		e.holders[pod.UID] = struct{}{}
		s.startWatchLocked(key, e)
	}
	for key := range before {
		if _, still := wanted[key]; !still {
			s.dropLocked(key, pod.UID)
		}
	}
}

// first are the first keys of a set, in an order that is always the same.
func first(keys map[Key]struct{}, most int) map[Key]struct{} {
	if len(keys) <= most {
		return keys
	}
	list := slices.SortedFunc(maps.Keys(keys), func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, key := range list[most:] {
		delete(keys, key)
	}
	return keys
}

// Release ends what Hold and Await began.
func (s *Store) Release(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.pods[uid] {
		s.dropLocked(key, uid)
	}
	delete(s.pods, uid)
	delete(s.reread, uid)
	for _, w := range s.waits {
		w.forget(uid)
	}
}

// Subscribe calls f with each object that appeared, changed or went after it
// was first read, and the pods that hold it (none for the Node) or await it. f must return
// at once. Call it before Run.
func (s *Store) Subscribe(f func(key Key, holders []types.UID)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers = append(s.subscribers, f)
}

// ConfigMap reads a config map. The error is apierrors.IsNotFound when it does
// not exist.
func (s *Store) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return read[*v1.ConfigMap](ctx, s, Key{Kind: ConfigMap, Namespace: namespace, Name: name})
}

// Secret reads a secret; see ConfigMap.
func (s *Store) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	return read[*v1.Secret](ctx, s, Key{Kind: Secret, Namespace: namespace, Name: name})
}

// RuntimeClass reads a runtime class; see ConfigMap.
func (s *Store) RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	return read[*nodev1.RuntimeClass](ctx, s, Key{Kind: RuntimeClass, Name: name})
}

// CSIDriver reads what the cluster says of a CSI driver; see ConfigMap.
func (s *Store) CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return read[*storagev1.CSIDriver](ctx, s, Key{Kind: CSIDriver, Name: name})
}

// Node reads the own node object; see ConfigMap.
func (s *Store) Node(ctx context.Context) (*v1.Node, error) {
	return read[*v1.Node](ctx, s, Key{Kind: Node, Name: s.cfg.NodeName})
}

// KnownNode is the own node object as far as the watch has it; nil before its
// first answer, and when there is none. It never waits, and Subscribe tells when
// that changes.
func (s *Store) KnownNode() *v1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil || s.cfg.NodeName == "" {
		return nil
	}
	// Asked for before Run, too, it is missed, so that its first answer is told.
	e := s.entryForLocked(Key{Kind: Node, Name: s.cfg.NodeName})
	e.pinned = true
	e.missed = e.missed || !e.known
	node, _ := e.object.(*v1.Node)
	return node
}

// entryForLocked finds or makes an entry.
func (s *Store) entryForLocked(key Key) *entry {
	e := s.entries[key]
	if e == nil {
		e = &entry{holders: map[types.UID]struct{}{}, synced: make(chan struct{}), away: make(chan struct{})}
		s.entries[key] = e
		s.held[key.Namespace]++
	}
	return e
}

// dropLocked takes one holder from an entry and ends its watch with the last.
func (s *Store) dropLocked(key Key, uid types.UID) {
	e := s.entries[key]
	if e == nil {
		return
	}
	delete(e.holders, uid)
	if len(e.holders) > 0 || e.pinned {
		return
	}
	if e.stop != nil {
		e.stop()
	}
	delete(s.entries, key)
	if s.held[key.Namespace]--; s.held[key.Namespace] == 0 {
		delete(s.held, key.Namespace)
	}
}
