package source

import (
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// recorder is a Sink, a Reporter and a Mirrors that keeps what it is told.
type recorder struct {
	mu      sync.Mutex
	pods    map[types.UID]*v1.Pod
	mirrors map[types.UID]*v1.Pod
	ready   []string
	log     []string
	health  map[string]string
	events  []string
	sets    int
	doubts  []string
	all     []string // what was set, removed and in doubt, in order
}

func newRecorder() *recorder {
	return &recorder{pods: map[types.UID]*v1.Pod{}, mirrors: map[types.UID]*v1.Pod{}, health: map[string]string{}}
}

func (r *recorder) do(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *recorder) Set(pod *v1.Pod, src string) {
	r.do(func() {
		r.pods[pod.UID] = pod
		r.sets++
		r.log, r.all = append(r.log, "set "+pod.Name), append(r.all, "set "+pod.Name)
	})
}
func (r *recorder) Remove(uid types.UID, src string) {
	r.do(func() {
		if r.pods[uid] != nil {
			r.log, r.all = append(r.log, "remove "+r.pods[uid].Name), append(r.all, "remove "+r.pods[uid].Name)
		}
		delete(r.pods, uid)
	})
}
func (r *recorder) Ready(src string) {
	r.do(func() { r.ready = append(r.ready, src); r.log = append(r.log, "ready "+src) })
}
func (r *recorder) Doubt(src string, some bool) {
	r.do(func() {
		r.doubts = append(r.doubts, fmt.Sprint(src, " ", some))
		r.all = append(r.all, fmt.Sprint("doubt ", src, " ", some))
	})
}
func (r *recorder) SetStatic(*v1.Pod)      {}
func (r *recorder) RemoveStatic(types.UID) {}
func (r *recorder) StaticReady()           {}
func (r *recorder) SetMirror(pod *v1.Pod)  { r.do(func() { r.mirrors[pod.UID] = pod }) }
func (r *recorder) RemoveMirror(uid types.UID) {
	r.do(func() { delete(r.mirrors, uid) })
}
func (r *recorder) MirrorsReady() {}

type reporter struct{ *recorder }

// noter is an Events.
type noter struct{ *recorder }

func (n noter) Pod(pod *v1.Pod, _, reason, message string) {
	n.do(func() { n.events = append(n.events, "pod "+pod.Name+" "+reason+" "+message) })
}

func (n noter) Node(_, reason, message string) {
	n.do(func() { n.events = append(n.events, "node "+reason+" "+message) })
}

func (r reporter) Set(name string, ready bool, message string) {
	r.do(func() {
		delete(r.health, name)
		if !ready {
			r.health[name] = message
		}
	})
}

func (r *recorder) readies() (ready []string) {
	r.do(func() { ready = slices.Clone(r.ready) })
	return ready
}

func (r *recorder) logged() (log []string) {
	r.do(func() { log = slices.Clone(r.log) })
	return log
}

// trouble is why something is not ready; empty when it is.
func (r *recorder) trouble(name string) (why string) {
	r.do(func() { why = r.health[name] })
	return why
}

func (r *recorder) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, pod := range r.pods {
		out = append(out, pod.Name)
	}
	slices.Sort(out)
	return out
}
