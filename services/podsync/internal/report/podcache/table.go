package podcache

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// longestName is the longest name of a link to a log, with its suffix.
const longestName = 255

// LogLink is the name of the link by which log collectors find a container's log,
// <pod>_<namespace>_<container>-<id>.log, cut before the suffix.
func LogLink(pod, namespace, container, id string) string {
	const suffix = ".log"
	name := pod + "_" + namespace + "_" + container + "-" + id
	return name[:min(len(name), longestName-len(suffix))] + suffix
}

// Volume is one mounted volume of a pod.
type Volume struct {
	Name, HostPath      string
	Ephemeral, InMemory bool
	// PVC is the claim that it comes from; empty for others.
	PVC string
	// Driven: only its driver can say how full it is.
	Driven bool
	// Counted: podsync can say what is in it without a walk, and what no walk finds.
	Counted bool
}

// Volumes are the volumes of one pod, in spec order.
type Volumes struct {
	UID             types.UID
	Namespace, Name string
	Volumes         []Volume
}

// Entry is one row of the table; exactly one field is set.
type Entry struct {
	// PodsCgroup is the cgroup above all pods.
	PodsCgroup string

	Sandbox   *podstate.SandboxRow
	Container *podstate.ContainerRow
	Volumes   *Volumes
}

// EntryKey names a row: a CRI id, or a pod's UID for its volumes; the zero value
// is the row of the cgroup above all pods.
type EntryKey struct {
	ID         string
	VolumesUID types.UID
}

// Table is all that the runtime has, as the observer sees it. Safe for
// concurrent use.
type Table struct {
	store *watch.Store[EntryKey, Entry]
	// whole is closed when it has all that the runtime had when this process was started.
	whole     chan struct{}
	wholeOnce sync.Once

	mu   sync.RWMutex
	pods map[types.UID]*podRows
}

type podRows struct {
	sandboxes  map[string]podstate.SandboxRow
	containers map[string]podstate.ContainerRow
}

// NewTable returns an empty table of a process with this epoch.
func NewTable(epoch uint64) *Table {
	return &Table{store: watch.NewStore[EntryKey, Entry](epoch, sameEntry), whole: make(chan struct{}), pods: map[types.UID]*podRows{}}
}

func sameEntry(a, b Entry) bool {
	switch {
	case a.PodsCgroup != "":
		return a.PodsCgroup == b.PodsCgroup
	case a.Sandbox != nil && b.Sandbox != nil:
		return *a.Sandbox == *b.Sandbox
	case a.Container != nil && b.Container != nil:
		return *a.Container == *b.Container
	case a.Volumes != nil && b.Volumes != nil:
		return a.Volumes.UID == b.Volumes.UID && slices.Equal(a.Volumes.Volumes, b.Volumes.Volumes)
	default:
		return false
	}
}

// SetPod makes the table hold exactly these sandboxes and containers of a pod;
// none of both removes the pod. Rows that did not change are not sent again.
func (t *Table) SetPod(uid types.UID, sandboxes []podstate.SandboxRow, containers []podstate.ContainerRow) {
	rows := &podRows{sandboxes: make(map[string]podstate.SandboxRow, len(sandboxes)), containers: make(map[string]podstate.ContainerRow, len(containers))}
	for _, s := range sandboxes {
		rows.sandboxes[s.ID] = s
	}
	for _, c := range containers {
		rows.containers[c.ID] = c
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.pods[uid]; old != nil {
		for id := range old.sandboxes {
			if _, keep := rows.sandboxes[id]; !keep {
				t.store.Delete(EntryKey{ID: id})
			}
		}
		for id := range old.containers {
			if _, keep := rows.containers[id]; !keep {
				t.store.Delete(EntryKey{ID: id})
			}
		}
	}
	if len(sandboxes)+len(containers) == 0 {
		delete(t.pods, uid)
		return
	}
	t.pods[uid] = rows
	for _, s := range sandboxes {
		t.store.Set(EntryKey{ID: s.ID}, Entry{Sandbox: &s})
	}
	for _, c := range containers {
		t.store.Set(EntryKey{ID: c.ID}, Entry{Container: &c})
	}
}

// SetWhole says that the table has all that the runtime had when this process was started.
func (t *Table) SetWhole() { t.wholeOnce.Do(func() { close(t.whole) }) }

// Whole is closed when it has. Who takes the table for all that there is waits for that.
func (t *Table) Whole() <-chan struct{} { return t.whole }

// SetPodsCgroup shows the cgroup above all pods, as it stands in the cgroup
// filesystem.
func (t *Table) SetPodsCgroup(path string) { t.store.Set(EntryKey{}, Entry{PodsCgroup: path}) }

// SetVolumes shows the volumes of a pod; none removes them.
func (t *Table) SetVolumes(volumes Volumes) {
	key := EntryKey{VolumesUID: volumes.UID}
	if len(volumes.Volumes) == 0 {
		t.store.Delete(key)
		return
	}
	t.store.Set(key, Entry{Volumes: &volumes})
}

// HasVolumes says whether volumes of a pod are shown.
func (t *Table) HasVolumes(uid types.UID) bool {
	_, shown := t.store.Get(EntryKey{VolumesUID: uid})
	return shown
}

// Running returns the running container of this name in the pod.
func (t *Table) Running(uid types.UID, container string) (podstate.ContainerRow, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	rows := t.pods[uid]
	if rows == nil {
		return podstate.ContainerRow{}, false
	}
	for _, c := range rows.containers {
		if c.Name == container && c.State == podstate.StateRunning {
			return c, true
		}
	}
	return podstate.ContainerRow{}, false
}

// Container returns a container of the pod by its CRI id.
func (t *Table) Container(uid types.UID, id string) (podstate.ContainerRow, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	rows := t.pods[uid]
	if rows == nil {
		return podstate.ContainerRow{}, false
	}
	c, ok := rows.containers[id]
	return c, ok
}

// ReadySandbox returns the ready sandbox of the pod; the newest when there are several.
func (t *Table) ReadySandbox(uid types.UID) (podstate.SandboxRow, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	rows := t.pods[uid]
	if rows == nil {
		return podstate.SandboxRow{}, false
	}
	var best podstate.SandboxRow
	found := false
	for _, s := range rows.sandboxes {
		if s.Ready && (!found || s.Attempt > best.Attempt) {
			best, found = s, true
		}
	}
	return best, found
}

// Namespace is that of a pod of which the runtime has something; else empty.
func (t *Table) Namespace(uid types.UID) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	rows := t.pods[uid]
	if rows == nil {
		return ""
	}
	for _, s := range rows.sandboxes {
		return s.Namespace
	}
	for _, c := range rows.containers {
		return c.Namespace
	}
	return ""
}

// RunningPods returns the pods that have a ready sandbox or a running
// container, with their running containers, sorted by UID and name.
func (t *Table) RunningPods() []RunningPod {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []RunningPod
	for _, uid := range slices.Sorted(maps.Keys(t.pods)) {
		if pod, ok := t.pods[uid].running(uid); ok {
			out = append(out, pod)
		}
	}
	return out
}

// RunningPod is a pod of which something runs.
type RunningPod struct {
	UID             types.UID
	Namespace, Name string
	Containers      []podstate.ContainerRow
}

func (r *podRows) running(uid types.UID) (RunningPod, bool) {
	pod := RunningPod{UID: uid}
	found := false
	for _, s := range r.sandboxes {
		if s.Ready {
			pod.Namespace, pod.Name, found = s.Namespace, s.Name, true
		}
	}
	for _, c := range r.containers {
		if c.State == podstate.StateRunning {
			pod.Namespace, pod.Name, found = c.Namespace, c.PodName, true
			pod.Containers = append(pod.Containers, c)
		}
	}
	slices.SortFunc(pod.Containers, func(a, b podstate.ContainerRow) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return pod, found
}

// Subscribe returns the table as a snapshot and then changes.
func (t *Table) Subscribe(ctx context.Context) *watch.Subscription[EntryKey, Entry] {
	return t.store.Subscribe(ctx)
}
