// Package inventory holds what podsync said about the containers of this node:
// how each is called, whose it is, where its logs and volumes lie.
//
// It owns that table only. It must never measure anything, and an empty table
// is a valid one: cgroups are then measured without names.
package inventory

import (
	"cmp"
	"maps"
	"sync"
	"time"
)

// Pod names a pod.
type Pod struct{ Namespace, Name, UID string }

// Sandbox is a pod sandbox of the runtime.
type Sandbox struct {
	// ID is the CRI id.
	ID string
	// Pod is whose it is.
	Pod Pod
	// Attempt is the CRI attempt; the highest is the pod's present sandbox.
	Attempt uint32
	// Ready is whether it runs.
	Ready bool
	// CreateTime is when it was created.
	CreateTime time.Time
	// CgroupParent is the pod's cgroup below the cgroup root; empty when the
	// runtime chose it.
	CgroupParent string
}

// Container is a container of the runtime.
type Container struct {
	// ID is the CRI id; SandboxID that of its sandbox.
	ID, SandboxID string
	// Pod is whose it is.
	Pod Pod
	// Name is the name in the pod's spec.
	Name string
	// Attempt is the CRI attempt; the highest of a name is the present one.
	Attempt uint32
	// Image is the image as the spec names it.
	Image string
	// Running is whether it runs, Ended whether it has ended; neither before it starts.
	Running, Ended bool
	// Over is when it was heard first that it has ended: nothing is written after that.
	// Zero before; the table sets it.
	Over time.Time
	// StartTime is when it started; zero before.
	StartTime time.Time
	// LogDir is the directory of its log files.
	LogDir string
}

// Volume is a mounted volume of a pod.
type Volume struct {
	// Name is the name in the pod's spec; HostPath its directory.
	Name, HostPath string
	// Ephemeral is whether it counts as the pod's ephemeral storage; InMemory
	// whether it is a tmpfs.
	Ephemeral, InMemory bool
	// PVC is the claim it comes from; empty for others.
	PVC string
	// Driven: only its driver can say how full it is; HostPath is empty then.
	Driven bool
	// Counted: its filesystem counts what is in it, which podsync can say.
	Counted bool
}

// PodVolumes are the volumes of one pod, in spec order.
type PodVolumes struct {
	Pod     Pod
	Volumes []Volume
}

// Change is one frame of what podsync sends.
type Change struct {
	// Snapshot is true when the change holds all there is.
	Snapshot bool
	// Epoch is that of the run of podsync that says it.
	Epoch          uint64
	Sandboxes      []Sandbox
	Containers     []Container
	Volumes        []PodVolumes
	RemovedIDs     []string
	RemovedVolumes []string
	// PodsCgroup is the cgroup above all pods; empty says nothing of it.
	PodsCgroup string
}

// View is the table at one moment. It must not be changed.
type View struct {
	// Version grows with every change; 0 before the first.
	Version uint64
	// Sandboxes and Containers by CRI id, Volumes by pod UID.
	Sandboxes  map[string]Sandbox
	Containers map[string]Container
	Volumes    map[string]PodVolumes
	// PodsCgroup is the cgroup above all pods, as the runtime's driver spells it;
	// empty until podsync knows.
	PodsCgroup string
	// Begun is when podsync last began to tell all there is; zero before the first time.
	Begun time.Time
}

// Table follows podsync. The zero value is an empty table. Safe for concurrent use.
type Table struct {
	mu   sync.Mutex
	view View
	// shared says that view was handed out and has to be copied before a change.
	shared bool
	// epoch is that of the run of podsync which was heard last.
	epoch uint64
	// earlier are the pods whose volumes are those that the podsync before this one said. The
	// runtime has something of each, or had nothing when this podsync was started; then it is
	// said until when they stand.
	earlier map[string]time.Time
	// changed is closed with the next change; nil while nobody has asked for it.
	changed chan struct{}
}

// lookedFor is how long a podsync that was just started may look at a pod of which the runtime has
// nothing: that was waiting for a sandbox, or was removed while podsync was away, of which nobody
// tells.
const lookedFor = 5 * time.Minute

// Follow returns the table as it is, and a channel that is closed when it changes.
func (t *Table) Follow() (View, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked()
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	t.shared = true
	return t.view, t.changed
}

// View returns the table as it is.
func (t *Table) View() View {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked()
	t.shared = true
	return t.view
}

// PodsCgroup is that of the View.
func (t *Table) PodsCgroup() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view.PodsCgroup
}

// Apply takes a frame in. A podsync that was started anew says of all sandboxes and containers
// at once, and of a pod's volumes when it has looked at them: until then those stand that it
// said before, of pods that the runtime still has or that it may not have looked at.
func (t *Table) Apply(c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := View{Version: t.view.Version + 1, PodsCgroup: cmp.Or(c.PodsCgroup, t.view.PodsCgroup), Begun: t.view.Begun}
	if c.Snapshot {
		next.Begun = time.Now()
	}
	switch {
	case c.Snapshot || t.view.Sandboxes == nil:
		next.Sandboxes, next.Containers, next.Volumes = map[string]Sandbox{}, map[string]Container{}, map[string]PodVolumes{}
	case t.shared:
		next.Sandboxes, next.Containers, next.Volumes = maps.Clone(t.view.Sandboxes), maps.Clone(t.view.Containers), maps.Clone(t.view.Volumes)
	default:
		next.Sandboxes, next.Containers, next.Volumes = t.view.Sandboxes, t.view.Containers, t.view.Volumes
	}
	for _, s := range c.Sandboxes {
		next.Sandboxes[s.ID] = s
	}
	for _, k := range c.Containers {
		next.Containers[k.ID] = over(k, t.view.Containers[k.ID])
	}
	if c.Snapshot {
		t.keepEarlierLocked(next, c.Epoch)
	}
	for _, v := range c.Volumes {
		next.Volumes[v.Pod.UID] = v
		delete(t.earlier, v.Pod.UID)
	}
	for _, id := range c.RemovedIDs {
		delete(next.Sandboxes, id)
		delete(next.Containers, id)
	}
	for _, uid := range c.RemovedVolumes {
		delete(next.Volumes, uid)
		delete(t.earlier, uid)
	}
	t.dropEarlierLocked(next, c.Snapshot)
	t.replaceLocked(next)
}

// replaceLocked has another view, which is nobody's yet.
func (t *Table) replaceLocked(next View) {
	t.view, t.shared = next, false
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// keepEarlierLocked keeps the volumes that podsync said, if it was started anew since; of the same
// run those stand that are not its own yet. Each run has its own time to look at them.
func (t *Table) keepEarlierLocked(next View, epoch uint64) {
	t.expireLocked() // before that: what stands no longer does not begin to again
	earlier := map[string]time.Time{}
	for uid, v := range t.view.Volumes {
		until, is := t.earlier[uid]
		if epoch != t.epoch {
			until, is = time.Time{}, true
		}
		if is {
			next.Volumes[uid], earlier[uid] = v, until
		}
	}
	t.epoch, t.earlier = epoch, earlier
}

// dropEarlierLocked drops what an earlier podsync said of the volumes of pods of which the runtime
// has nothing any more. If it had nothing from this podsync's start, they stand for a while.
func (t *Table) dropEarlierLocked(next View, start bool) {
	if len(t.earlier) == 0 {
		return
	}
	there := map[string]bool{}
	for _, s := range next.Sandboxes {
		there[s.Pod.UID] = true
	}
	for _, k := range next.Containers {
		there[k.Pod.UID] = true
	}
	for uid, until := range t.earlier {
		switch {
		case there[uid]:
			t.earlier[uid] = time.Time{}
		case start && until.IsZero():
			t.earlier[uid] = time.Now().Add(lookedFor)
		case until.IsZero():
			delete(next.Volumes, uid)
			delete(t.earlier, uid)
		}
	}
}

// expireLocked drops what an earlier podsync said of volumes that stand no longer.
func (t *Table) expireLocked() {
	var gone []string
	for uid, until := range t.earlier {
		if !until.IsZero() && !time.Now().Before(until) {
			gone = append(gone, uid)
		}
	}
	if len(gone) == 0 {
		return
	}
	next := t.view
	next.Version++
	next.Volumes = maps.Clone(t.view.Volumes)
	for _, uid := range gone {
		delete(next.Volumes, uid)
		delete(t.earlier, uid)
	}
	t.replaceLocked(next)
}

// over is a container with when it was heard first that it has ended; before is what was
// known of it.
func over(k, before Container) Container {
	switch {
	case !k.Ended:
		k.Over = time.Time{}
	case before.Ended:
		k.Over = before.Over
	default:
		k.Over = time.Now()
	}
	return k
}
