package fakeapiserver

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// change is one event of a resource.
type change struct {
	rv       int64
	kind     watch.EventType // ADDED, MODIFIED, DELETED
	old, now *entry          // for DELETED, now is the last state with the new version
}

// table holds one resource. Everything in it is guarded by Server.mu.
type table struct {
	res       *resource
	objects   map[string]*entry // namespace/name
	changes   []change
	compacted int64 // versions below cannot be watched from any more
	watchers  map[*watcher]struct{}
}

func key(namespace, name string) string { return namespace + "/" + name }

// keys are in order, so that lists are.
func (t *table) keys() []string { return slices.Sorted(maps.Keys(t.objects)) }

// put stores obj as the new state of what old was (nil: it is new). The object gets the
// next resource version; one that did not change keeps its own, and nobody is told.
func (s *Server) put(t *table, verb, sub, agent string, old *entry, obj runtime.Object) *entry {
	m := metaOf(obj)
	if old != nil {
		m.SetResourceVersion(metaOf(old.obj).GetResourceVersion())
		m.SetManagedFields(nil)
		if unchanged(sub, old.obj, obj) {
			return old
		}
	}
	now := s.next(t, obj)
	t.objects[key(m.GetNamespace(), m.GetName())] = now
	kind := watch.Modified
	var before runtime.Object
	if old == nil {
		kind = watch.Added
	} else {
		before = old.obj
	}
	s.record(t, change{rv: s.version, kind: kind, old: old, now: now})
	s.wrote(Write{Verb: verb, GVR: t.res.gvr(), Subresource: sub, Old: before, New: now.obj, UserAgent: agent})
	return now
}

// unchanged compares what a write through a subresource can have changed.
func unchanged(sub string, old, obj runtime.Object) bool {
	if sub != "status" {
		return equality.Semantic.DeepEqual(old, obj)
	}
	for _, name := range []string{"Status", "ObjectMeta"} {
		if now := part(obj, name); now.IsValid() && !equality.Semantic.DeepEqual(part(old, name).Addr().Interface(), now.Addr().Interface()) {
			return false
		}
	}
	return true
}

// drop removes what is stored.
func (s *Server) drop(t *table, agent string, old *entry) *entry {
	last := s.next(t, old.obj.DeepCopyObject())
	m := metaOf(old.obj)
	delete(t.objects, key(m.GetNamespace(), m.GetName()))
	s.record(t, change{rv: s.version, kind: watch.Deleted, old: old, now: last})
	s.wrote(Write{Verb: "delete", GVR: t.res.gvr(), Old: old.obj, UserAgent: agent})
	return last
}

// next gives the object the next version.
func (s *Server) next(t *table, obj runtime.Object) *entry {
	s.version++
	metaOf(obj).SetResourceVersion(strconv.FormatInt(s.version, 10))
	obj.GetObjectKind().SetGroupVersionKind(t.res.gvk)
	return &entry{obj: obj}
}

func (s *Server) record(t *table, c change) {
	t.changes = append(t.changes, c)
	if excess := len(t.changes) - s.cfg.History; excess > 0 {
		t.compacted = t.changes[excess-1].rv
		t.changes = slices.Delete(t.changes, 0, excess)
	}
	for w := range t.watchers {
		w.push(c)
	}
}

func (s *Server) wrote(w Write) {
	w.At = time.Now()
	s.writes = append(s.writes, w)
	if s.cfg.OnWrite != nil {
		s.cfg.OnWrite(w)
	}
}

// newUID depends on the seed and the name, and on how many of that name came before.
func (s *Server) newUID(gr schema.GroupResource, name string) types.UID {
	a := s.draw("uid a", gr.String(), name)
	b := s.draw("uid b", gr.String(), name)
	return types.UID(fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>52, b&0xffffffffffff))
}

const suffixChars = "bcdfghjklmnpqrstvwxz2456789"

// generatedName appends five characters to a prefix.
func (s *Server) generatedName(prefix string) string {
	x := s.draw("name", prefix)
	suffix := make([]byte, 5)
	for i := range suffix {
		suffix[i] = suffixChars[x%uint64(len(suffixChars))]
		x /= uint64(len(suffixChars))
	}
	return prefix + string(suffix)
}

func (s *Server) draw(parts ...string) uint64 {
	id := fmt.Sprint(parts)
	n := s.draws[id]
	s.draws[id]++
	return hash(append(parts, strconv.Itoa(n), strconv.FormatInt(s.cfg.Seed, 10))...)
}

// now is the time as it is after a trip over the wire: whole seconds.
func now() metav1.Time { return metav1.Now().Rfc3339Copy() }
