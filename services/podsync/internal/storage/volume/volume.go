// Package volume makes a pod's volumes on the host and keeps their content
// current: emptyDir, hostPath, configMap, secret, downwardAPI, projected and what claims
// are bound to by itself, others by the Drivers that it is given.
//
// It owns everything below <root>/pods/<uid>/volumes and volume-subpaths, the
// mounts there, and their end. It must never follow a symlink that a container
// could have made, never change a hostPath beyond creating it, and never remove
// what lies in a volume that outlives its pod.
package volume

import (
	"context"
	"sync"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/polylet/polylet/internal/turn"
	"github.com/polylet/polylet/services/podsync/internal/cluster/podcertificate"
	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/projectquota"
)

// Objects are the API objects that volumes are filled from.
type Objects interface {
	Hold(pod *v1.Pod)
	Release(uid types.UID)
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	TrustBundles(ctx context.Context) ([]certificatesv1beta1.ClusterTrustBundle, error)
}

// Tokens gives service-account tokens.
type Tokens interface {
	Get(ctx context.Context, r serviceaccount.Request) (serviceaccount.Token, error)
	Forget(uid types.UID)
}

// Certificates gives pods keys with certificates; *podcertificate.Cache has it.
type Certificates interface {
	Get(ctx context.Context, r podcertificate.Request) (podcertificate.Credential, error)
	Forget(uid types.UID)
}

// Config of a Set.
type Config struct {
	// RootDir is the node agent's root, e.g. /var/lib/kubelet.
	RootDir string
	// Workers is how many pods are refreshed at once; zero means 4.
	Workers int
	// TrustBundles is the gate ClusterTrustBundleProjection.
	TrustBundles bool
	// Health is the gate CSIVolumeHealth.
	Health bool
	// ProjectQuotas is the gate LocalStorageCapacityIsolationFSQuotaMonitoring: new emptyDirs
	// of pods with users of their own are counted by their filesystem.
	ProjectQuotas bool
}

// Projects has filesystems count directories; *projectquota.Quotas has it.
type Projects interface {
	Give(dir string) (id uint32, err error)
	Usage(dir string, id uint32) (projectquota.Usage, error)
}

// Pods are worked on anew; *worker.Registry has it.
type Pods interface {
	// ObjectsChanged tells that something may be there now which these pods wait for:
	// setting up again may work. It must return at once.
	ObjectsChanged(uids []types.UID)
}

// Events records events on pods and on volumes; *event.Recorder has it.
type Events interface {
	Pod(pod *v1.Pod, eventType, reason, message string)
	Volume(pv *v1.PersistentVolume, eventType, reason, message string)
}

// Deps are what a Set needs.
type Deps struct {
	Objects Objects
	Claims  Claims
	Tokens  Tokens
	// Certificates is nil while the gate PodCertificateRequest is off.
	Certificates Certificates
	Mounter      mount.Mounter
	// Apart does Calls; nil where nobody is asked about a volume who may not answer.
	Apart Apart
	// Events may be nil.
	Events Events
	// Stale keeps which volumes could not be brought up to date; may be nil.
	Stale *Stale
	// CSI makes the volumes of CSI drivers; nil when there are none.
	CSI Driver
	// Disks makes those of iSCSI targets and Fibre Channel fabrics; nil when there are none.
	Disks Driver
	// Projects counts emptyDirs; nil: they are walked.
	Projects Projects
	// Growth may be nil: volumes stay as large as they are.
	Growth Growth
	// Allocatable is the node's; nil or an empty list when not known.
	Allocatable func() v1.ResourceList
	// Pods may be nil.
	Pods Pods
	// Spec is a pod that is known, also before its volumes are set up, and nil when it is
	// not. It may be nil.
	Spec func(uid types.UID) *v1.Pod
	// Metrics may be nil.
	Metrics *metrics.Metrics
}

// Info is one volume of a pod, as other services want to know it.
type Info struct {
	Name      string
	HostPath  string
	Ephemeral bool
	InMemory  bool
	PVCName   string
	// Driven: it is to be asked for how full it is; see Usage.
	Driven bool
	// Counted: likewise, for its filesystem counts what is in it.
	Counted bool
}

// Set is the volumes of all pods; safe for concurrent use.
type Set struct {
	cfg     Config
	deps    Deps
	drivers map[string]Driver // by the names of their directories

	mu    sync.Mutex
	pods  map[types.UID]*podState
	queue workqueue.TypedRateLimitingInterface[types.UID] // nil until Run
	early map[types.UID]time.Time                         // refreshes wanted before Run
	// busy counts the refreshes under way by namespace, and parked are the pods that
	// wait for one of them to end.
	busy   map[string]int
	parked map[string][]types.UID

	handles turn.Turns // at volumes that pods share, by their names
}

// podState is what is known of one pod's volumes.
type podState struct {
	// turn lets one piece of work on the pod's directory run at a time.
	turn chan struct{}

	// The rest is guarded by Set.mu.
	pod     *v1.Pod              // as last set up; nil before
	paths   map[string]string    // volume name -> host path
	shares  shares               // of the files that podsync writes
	since   map[string]time.Time // volume name -> when it was first wanted, until the pod has it
	renewal map[string]time.Time // volume name -> when to refresh it because of a token's age
	next    time.Time            // the earliest of renewal; zero for never
	gone    bool                 // torn down; take a new state
	ending  bool                 // taken down, until the next Setup
	again   bool                 // a refresh is wanted at the turn's end
	bound   map[string]bound     // volume name -> what its claim is bound to
	// left is what was in bound when the pod's volumes were to be taken down, and onWay are those
	// that were on the disk then, by their directories; nil as long as that is not known.
	left  map[string]bound
	onWay map[string]onWay
	// projects are those by which volumes are counted.
	projects map[string]uint32
	works    map[string]*work // what is under way, by the shared volume's name
	came     chan struct{}    // closed, and another made, when what failed may work
	retries  attempts         // of what could not be taken down; has a lock of its own
	remotes  chan struct{}    // places for what is asked of servers; never changed
	lanes    lanes            // places with each driver, and of remotes for each server; has a lock of its own
	// namespace is the pod's, and mounts is how many it needs; see room.
	namespace string
	mounts    int
}

// New makes a Set; it starts nothing and touches no file.
func New(cfg Config, deps Deps) *Set {
	if cfg.Workers <= 0 {
		cfg.Workers = 4
	}
	s := &Set{
		cfg: cfg, deps: deps, pods: map[types.UID]*podState{}, early: map[types.UID]time.Time{},
		busy: map[string]int{}, parked: map[string][]types.UID{},
	}
	s.drivers = s.own()
	if deps.CSI != nil {
		s.drivers[pluginCSI] = deps.CSI
	}
	if deps.Disks != nil {
		s.drivers[pluginISCSI], s.drivers[pluginFC] = deps.Disks, deps.Disks
	}
	return s
}

// enter waits for the pod's turn and returns its state with a function that
// ends the turn.
func (s *Set) enter(ctx context.Context, uid types.UID) (*podState, func(), error) {
	for {
		st := s.state(uid)
		select {
		case st.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
		s.mu.Lock()
		gone := st.gone
		s.mu.Unlock()
		if !gone {
			return st, func() { s.leave(uid, st) }, nil
		}
		<-st.turn
	}
}

// leave ends a turn, and has the refresh done that found it taken.
func (s *Set) leave(uid types.UID, st *podState) {
	s.mu.Lock()
	<-st.turn
	again := st.again
	st.again = false
	s.mu.Unlock()
	if again {
		s.refreshAt(uid, time.Now())
	}
}

// tryEnter is enter for a refresh, which waits for nobody: when the turn is taken, it is
// asked for again at the turn's end. The state is nil then, and when there is none.
func (s *Set) tryEnter(uid types.UID) (*podState, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.pods[uid]
	if st == nil {
		return nil, nil
	}
	select {
	case st.turn <- struct{}{}:
		return st, func() { s.leave(uid, st) }
	default:
		st.again = true
		return nil, nil
	}
}

func (s *Set) state(uid types.UID) *podState {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.pods[uid]
	if st == nil {
		st = &podState{turn: make(chan struct{}, 1), works: map[string]*work{}, remotes: make(chan struct{}, atOnce), came: make(chan struct{})}
		st.clear()
		s.pods[uid] = st
	}
	return st
}

// clear forgets all volumes.
func (st *podState) clear() {
	st.pod, st.paths, st.shares = nil, map[string]string{}, newShares()
	st.renewal, st.next = map[string]time.Time{}, time.Time{}
	st.bound, st.projects = map[string]bound{}, map[string]uint32{}
}

// dropLocked forgets the state of a pod that has no volumes, whose turn the caller has:
// it was made by entering after the pod's end.
func (s *Set) dropLocked(uid types.UID, st *podState) {
	st.gone = true
	if s.pods[uid] == st {
		delete(s.pods, uid)
	}
}

// HostPath is where a volume of a pod lies on the host, which is empty for what the runtime
// mounts and for what no container uses; false when the pod has no such volume, it is not set
// up, or it is a device.
func (s *Set) HostPath(uid types.UID, volumeName string) (string, bool) {
	return s.path(uid, volumeName, false)
}

// Device is HostPath of a volume that is a device: the link to it.
func (s *Set) Device(uid types.UID, volumeName string) (string, bool) {
	return s.path(uid, volumeName, true)
}

func (s *Set) path(uid types.UID, volumeName string, device bool) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.pods[uid]
	if st == nil || st.bound[volumeName].Device != device {
		return "", false
	}
	path, ok := st.paths[volumeName]
	return path, ok
}

// Volumes lists a pod's volumes that are set up, in spec order. A hostPath is
// not listed, be it a claim's: it is the host's, not the pod's.
func (s *Set) Volumes(uid types.UID) []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.pods[uid]
	if st == nil || st.pod == nil {
		return nil
	}
	var list []Info
	for i := range st.pod.Spec.Volumes {
		v := &st.pod.Spec.Volumes[i]
		path := st.paths[v.Name]
		ok := path != "" // else no container uses it
		if b := st.bound[v.Name]; ok && !b.Device && (b.Kind == claims.Local && !b.Served || b.Kind == claims.ISCSI || v.ISCSI != nil) {
			list = append(list, Info{Name: v.Name, HostPath: path, PVCName: b.Claim})
		}
		if ok && st.driven(v) {
			list = append(list, Info{Name: v.Name, HostPath: path, PVCName: st.bound[v.Name].Claim, Driven: true})
		}
		if !ok || !measured(v) {
			continue
		}
		list = append(list, Info{Name: v.Name, HostPath: path, Ephemeral: true, InMemory: inMemory(v), Counted: st.projects[v.Name] != 0})
	}
	return list
}

// measured says whether a volume's files are of the pod's own.
func measured(v *v1.Volume) bool { return v.EmptyDir != nil || isContent(v) }

// inMemory says whether a volume lives in memory.
func inMemory(v *v1.Volume) bool {
	switch {
	case v.EmptyDir != nil:
		return v.EmptyDir.Medium != v1.StorageMediumDefault
	case v.Secret != nil, v.Projected != nil:
		return true
	}
	return false
}

func (s *Set) allocatable() v1.ResourceList {
	if s.deps.Allocatable == nil {
		return nil
	}
	return s.deps.Allocatable()
}
