package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Listed takes in the pods of a list, before Set or Touch does, and its version. A list
// that is not older than what was written here has it; an object in it that is older has
// lost it: etcd was restored from before, and has come to that version again. Nothing
// else shows that when the watch had not brought what was lost.
func (w *Writer) Listed(version string, pods []*v1.Pod) {
	objects := make(map[types.UID]*v1.Pod, len(pods))
	for _, pod := range pods {
		objects[pod.UID] = pod
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.entries {
		if object := objects[e.knownOf]; object != nil && newer(e.rv, object.ResourceVersion) && !newer(e.rv, version) {
			e.lostLocked(object)
			w.lookLocked(e)
		}
	}
}

// againLocked makes what the apiserver had accepted something that it has not.
func (e *entry) againLocked() {
	if e.version > 0 && e.accepted == e.version {
		e.version++
		e.since = time.Now()
	}
	e.tries = 0
}

// wentBackLocked takes in that the apiserver's data went back to an earlier state,
// which found has shown: of the others too, what was written after the newest object
// that the watch has brought may be lost. To write it again changes nothing if not.
func (w *Writer) wentBackLocked(found *entry) {
	for _, e := range w.entries {
		target, ok := w.target(e)
		if e == found || !ok || e.knownOf != target.UID || !newer(e.rv, target.ResourceVersion) {
			continue
		}
		e.lostLocked(target)
		w.lookLocked(e)
	}
}

// lostLocked takes in that this is what there is, whatever was written.
func (e *entry) lostLocked(object *v1.Pod) {
	e.seenOf, e.seen = object.UID, object.ResourceVersion
	e.knowLocked(object)
	e.againLocked()
}
