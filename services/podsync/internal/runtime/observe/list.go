package observe

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/inventory"
)

// work is what has to be looked at closer after a list.
type work struct {
	sandboxes  []string
	containers map[string]string // id to sandbox id
}

func (w *work) empty() bool { return len(w.sandboxes) == 0 && len(w.containers) == 0 }

// takeList takes a list in that began at seq. Entries that are older and not in
// it go. What is new or changed is returned by pod, to be looked at. uid empty
// means that the list is of everything.
func (t *table) takeList(seq uint64, uid types.UID, sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) map[types.UID]*work {
	return t.take(seq, uid, inventory.List{Sandboxes: sandboxes, Containers: containers})
}

// takeAll takes a list of everything in. What is known of pods that are not wholly in
// it stays as it is; one that was not known before stays unknown.
func (t *table) takeAll(seq uint64, list inventory.List) map[types.UID]*work {
	return t.take(seq, "", list)
}

func (t *table) take(seq uint64, uid types.UID, list inventory.List) map[types.UID]*work {
	sandboxes, containers := list.Sandboxes, list.Containers
	t.mu.Lock()
	defer t.mu.Unlock()
	for u := range list.TooLarge {
		if t.pods[u] == nil {
			t.podLocked(u, nil).known = false
			t.publishLocked(u)
		}
	}
	todo := map[types.UID]*work{}
	present := make(map[string]bool, len(sandboxes)+len(containers))
	need := func(u types.UID) *work {
		if todo[u] == nil {
			todo[u] = &work{containers: map[string]string{}}
		}
		return todo[u]
	}
	for _, s := range sandboxes {
		u := types.UID(s.GetLabels()[cri.LabelPodUID])
		if u == "" || list.TooLarge[u] != nil || !t.aliveLocked(s.GetId(), seq) {
			continue
		}
		present[s.GetId()] = true
		p := t.podLocked(u, s.GetLabels())
		p.static = isStatic(s.GetAnnotations())
		old := p.sandboxes[s.GetId()]
		if old == nil || old.Ready && s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			w := need(u)
			w.sandboxes = append(w.sandboxes, s.GetId())
		}
	}
	for _, c := range containers {
		u := types.UID(c.GetLabels()[cri.LabelPodUID])
		if u == "" || list.TooLarge[u] != nil || !t.aliveLocked(c.GetId(), seq) {
			continue
		}
		present[c.GetId()] = true
		p := t.podLocked(u, c.GetLabels())
		old := p.containers[c.GetId()]
		if old == nil || convertState(c.GetState()) > old.State || convertState(c.GetState()) == podstate.StateUnknown && old.State != podstate.StateExited {
			need(u).containers[c.GetId()] = c.GetPodSandboxId()
		}
	}
	t.sweepLocked(seq, uid, present, todo, list.TooLarge)
	return todo
}

// aliveLocked tells whether a listed id counts: one that was buried after the list
// began does not.
func (t *table) aliveLocked(id string, seq uint64) bool {
	g, dead := t.tombstones[id]
	if dead && g.seq >= seq {
		return false
	}
	delete(t.tombstones, id)
	return true
}

// sweepLocked removes what a list does not have and says of which pods all is known.
func (t *table) sweepLocked(seq uint64, uid types.UID, present map[string]bool, todo map[types.UID]*work, tooLarge map[types.UID]error) {
	first := uid == "" && !t.listed
	if uid == "" {
		t.listed = true
		for id, g := range t.tombstones {
			if time.Since(g.at) > graveTime {
				delete(t.tombstones, id)
			}
		}
	}
	for u, p := range t.pods {
		if uid != "" && u != uid || tooLarge[u] != nil {
			continue
		}
		changed := false
		for id, s := range p.sandboxes {
			if s.born < seq && !present[id] {
				changed = t.buryLocked(id) || changed
			}
		}
		for id, c := range p.containers {
			if c.born < seq && !present[id] {
				changed = t.buryLocked(id) || changed
			}
		}
		if todo[u] == nil {
			changed = changed || !p.known
			p.known = true
			t.sawLocked(u)
		}
		if changed || first {
			t.publishLocked(u)
		}
	}
	if first {
		t.awaitLocked(todo)
		t.sink.RuntimeSeen()
	}
}

// nameOf names a pod for people, as far as that is known.
func (t *table) nameOf(uid types.UID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.pods[uid]; p != nil && p.name != "" {
		return fmt.Sprintf("pod %s/%s (uid %s)", p.namespace, p.name, uid)
	}
	return fmt.Sprintf("pod uid %s", uid)
}

// settle says that all of a pod was looked at.
func (t *table) settle(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sawLocked(uid)
	if p := t.pods[uid]; p != nil && !p.known {
		p.known = true
		t.publishLocked(uid)
	}
}
