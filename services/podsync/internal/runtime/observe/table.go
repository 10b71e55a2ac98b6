package observe

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// graveTime is how long an id that is gone is remembered, so that an answer or
// event under way cannot bring it back.
const graveTime = 10 * time.Minute

// table holds everything that the runtime has, by pod.
type table struct {
	sink     Sink
	rows     Rows
	messages messages
	// whole is closed when all pods of the first list were looked at.
	whole chan struct{}

	mu         sync.Mutex
	seq        uint64             // grows with each look; orders entries against lists
	listed     bool               // a whole list was taken in
	unseen     map[types.UID]bool // of the first whole list, not looked at yet
	pods       map[types.UID]*pod
	owner      map[string]types.UID // by sandbox and container id
	tombstones map[string]tombstone
}

type tombstone struct {
	seq uint64
	at  time.Time
}

type pod struct {
	namespace, name string
	// static: a sandbox says that it is of a static pod.
	static     bool
	known      bool
	sandboxes  map[string]*sandbox
	containers map[string]*container
}

type sandbox struct {
	podstate.Sandbox
	born   uint64
	cgroup string
}

type container struct {
	podstate.Container
	born    uint64
	logPath string
	// asOf is when the newest status of it was taken.
	asOf time.Time
}

func newTable(sink Sink, rows Rows, said messages) *table {
	return &table{
		sink:       sink,
		rows:       rows,
		messages:   said,
		whole:      make(chan struct{}),
		pods:       map[types.UID]*pod{},
		owner:      map[string]types.UID{},
		tombstones: map[string]tombstone{},
	}
}

// uids are the pods of which something is known.
func (t *table) uids() []types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.pods))
}

// begin marks the beginning of a look: entries made from now on are newer than it.
func (t *table) begin() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seq++
	return t.seq
}

func (t *table) current(uid types.UID) podstate.Observed {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.observedLocked(uid)
}

func (t *table) ownerOf(id string) (types.UID, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	uid, ok := t.owner[id]
	return uid, ok
}

// observedLocked builds what the planner sees.
func (t *table) observedLocked(uid types.UID) podstate.Observed {
	p := t.pods[uid]
	if p == nil {
		return podstate.Observed{Known: t.listed}
	}
	o := podstate.Observed{Known: p.known}
	if p.static {
		o.StaticOf = p.namespace + "/" + p.name
	}
	for _, s := range p.sandboxes {
		o.Sandboxes = append(o.Sandboxes, s.Sandbox)
	}
	slices.SortFunc(o.Sandboxes, func(a, b podstate.Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	for _, c := range p.containers {
		o.Containers = append(o.Containers, c.Container)
	}
	slices.SortFunc(o.Containers, func(a, b podstate.Container) int {
		return cmp.Or(cmp.Compare(b.RestartCount, a.RestartCount), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return o
}

// publishLocked tells of a pod, and forgets one of which nothing is left.
func (t *table) publishLocked(uid types.UID) {
	t.sink.Observe(uid, t.observedLocked(uid))
	t.showLocked(uid)
	if p := t.pods[uid]; p != nil && p.known && len(p.sandboxes) == 0 && len(p.containers) == 0 {
		delete(t.pods, uid)
	}
}

// isStatic says whether the annotations are those of a static pod's sandbox.
func isStatic(annotations map[string]string) bool {
	src := annotations[podutil.AnnotationSource]
	return src != "" && src != "api"
}

// podLocked returns a pod's entry, making it.
func (t *table) podLocked(uid types.UID, labels map[string]string) *pod {
	p := t.pods[uid]
	if p == nil {
		p = &pod{
			namespace: labels[cri.LabelPodNamespace], name: labels[cri.LabelPodName], known: t.listed,
			sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		}
		t.pods[uid] = p
	}
	return p
}

// setSandbox takes in a sandbox's status.
func (t *table) setSandbox(st *runtimeapi.PodSandboxStatus) {
	uid := types.UID(st.GetLabels()[cri.LabelPodUID])
	if uid == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, dead := t.tombstones[st.GetId()]; dead {
		return
	}
	p := t.podLocked(uid, st.GetLabels())
	p.static = isStatic(st.GetAnnotations())
	next := convertSandbox(st)
	old := p.sandboxes[st.GetId()]
	if old == nil {
		t.seq++
		old = &sandbox{born: t.seq, cgroup: st.GetAnnotations()[cri.AnnotationCgroupParent]}
		p.sandboxes[next.ID] = old
		t.owner[next.ID] = uid
	} else {
		if !old.Ready {
			next.Ready = false
		}
		if len(next.IPs) == 0 {
			next.IPs = old.IPs
		}
		if reflect.DeepEqual(old.Sandbox, next) {
			return
		}
	}
	old.Sandbox = next
	t.publishLocked(uid)
}

// setContainer takes in a container's status of a time, and returns when that
// happened which it says and which was not known; zero when it says nothing new.
// Events come late: of two statuses with the same state the newer one counts. The
// termination message is read before the lock is taken.
func (t *table) setContainer(st *runtimeapi.ContainerStatus, sandboxID string, asOf time.Time) time.Time {
	uid := types.UID(st.GetLabels()[cri.LabelPodUID])
	if uid == "" || t.finished(uid, st.GetId()) {
		return time.Time{}
	}
	next := convertContainer(st, sandboxID, t.messages)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, dead := t.tombstones[next.ID]; dead {
		return time.Time{}
	}
	p := t.podLocked(uid, st.GetLabels())
	old := p.containers[next.ID]
	happened := since(old, &next)
	if old == nil {
		t.seq++
		old = &container{born: t.seq, logPath: st.GetLogPath(), asOf: asOf}
		p.containers[next.ID] = old
		t.owner[next.ID] = uid
	} else {
		if next.SandboxID == "" {
			next.SandboxID = old.SandboxID
		}
		if old.State > next.State && next.State != podstate.StateUnknown || old.State == next.State && asOf.Before(old.asOf) {
			return time.Time{}
		}
		if asOf.After(old.asOf) {
			old.asOf = asOf
		}
		if reflect.DeepEqual(old.Container, next) {
			return time.Time{}
		}
	}
	old.Container = next
	t.publishLocked(uid)
	return happened
}

// since is when the container came into its state; zero when it was known in it.
func since(old *container, next *podstate.Container) time.Time {
	if old != nil && old.State == next.State {
		return time.Time{}
	}
	switch next.State {
	case podstate.StateCreated:
		return next.CreatedAt
	case podstate.StateRunning:
		return next.StartedAt
	case podstate.StateExited:
		return next.FinishedAt
	}
	return time.Time{}
}

// finished tells that the container is known to have exited: nothing about it
// changes any more but that it goes.
func (t *table) finished(uid types.UID, id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pods[uid]
	if p == nil {
		return false
	}
	c := p.containers[id]
	return c != nil && c.State == podstate.StateExited
}

// remove takes out what the runtime says is gone.
func (t *table) remove(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	uid, ok := t.owner[id]
	if t.buryLocked(id) && ok {
		t.publishLocked(uid)
	}
}

// buryLocked removes an entry without telling.
func (t *table) buryLocked(id string) bool {
	t.tombstones[id] = tombstone{seq: t.seq, at: time.Now()}
	uid, ok := t.owner[id]
	if !ok {
		return false
	}
	delete(t.owner, id)
	if p := t.pods[uid]; p != nil {
		delete(p.sandboxes, id)
		delete(p.containers, id)
	}
	return true
}

// showLocked tells others what the runtime has of a pod.
func (t *table) showLocked(uid types.UID) {
	if t.rows == nil {
		return
	}
	p := t.pods[uid]
	if p == nil {
		t.rows.SetPod(uid, nil, nil)
		return
	}
	var sandboxes []podstate.SandboxRow
	for _, s := range p.sandboxes {
		sandboxes = append(sandboxes, podstate.SandboxRow{
			ID: s.ID, UID: uid, Namespace: p.namespace, Name: p.name, Attempt: s.Attempt, Ready: s.Ready,
			CreatedAt: s.CreatedAt, CgroupParent: s.cgroup,
		})
	}
	var containers []podstate.ContainerRow
	for _, c := range p.containers {
		containers = append(containers, podstate.ContainerRow{
			ID: c.ID, SandboxID: c.SandboxID, UID: uid, Namespace: p.namespace, PodName: p.name, Name: c.Name,
			Attempt: uint32(c.RestartCount), Image: c.Image, State: c.State, CreatedAt: c.CreatedAt, StartedAt: c.StartedAt, LogPath: c.logPath,
		})
	}
	t.rows.SetPod(uid, sandboxes, containers)
}

// count counts pods with a ready sandbox, and containers by state.
func (t *table) count() (pods int, containers map[podstate.ContainerState]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	containers = map[podstate.ContainerState]int{}
	for _, p := range t.pods {
		for _, s := range p.sandboxes {
			if s.Ready {
				pods++
				break
			}
		}
		for _, c := range p.containers {
			containers[c.State]++
		}
	}
	return pods, containers
}
