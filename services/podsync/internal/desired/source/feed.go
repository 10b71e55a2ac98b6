package source

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/wake"
)

// entry is one place where a static pod is written: a file, or an element of
// what a URL answers.
type entry struct {
	// where names the place for people.
	where string
	data  []byte
	// pod is the last good one; it stays while the place holds a broken one.
	pod *v1.Pod
	// err is what is wrong now; nil when nothing is.
	err error
	// since it is wrong.
	since time.Time
	// twin is what was logged of another place that holds the same pod.
	twin string
}

// feed gives the sink what the entries of one source hold. One goroutine uses it.
type feed struct {
	sources *Sources
	sink    Sink
	src     string
	// health is the name under which the source's problems are reported.
	health string
	// running holds the pods given to the sink, by UID.
	running map[types.UID]*v1.Pod
	// has is where each name and UID that counts was found last.
	has map[types.NamespacedName]string
	// unseen says that the source has something that is not among its entries.
	unseen bool
	// restless says of entries that they cannot be read, and are not broken.
	restless []string
	// doubted is what the sink was told of last.
	doubted bool
}

func (s *Sources) newFeed(sink Sink, src, health string) *feed {
	return &feed{sources: s, sink: sink, src: src, health: health, running: map[types.UID]*v1.Pod{}}
}

// take notes what is in an entry now: a pod, or an error beside which its last
// good pod goes on. It logs and tells when that is news.
func (f *feed) take(log klog.Logger, e *entry, pod *v1.Pod, err error) {
	before := e.err
	e.err = nil
	if err == nil {
		e.pod = pod
		if before != nil {
			log.Info("Static pod manifest is good again", "where", e.where, "pod", klog.KObj(pod))
		}
		return
	}
	e.err = fmt.Errorf("static pod manifest %s: %w", e.where, err)
	if before == nil {
		e.since = time.Now()
	}
	if before != nil && before.Error() == e.err.Error() {
		return
	}
	consequence := "nothing is started from it"
	if e.pod != nil {
		consequence = "the pod of its last good content goes on"
	}
	log.Error(e.err, "Static pod manifest is broken; correct or remove it, other pods are not affected", "consequence", consequence)
	f.sources.deps.Events.Node(v1.EventTypeWarning, "FailedValidation", e.err.Error()+"; "+consequence)
}

// doubt tells the sink whether something could not be read since this process started.
func (f *feed) doubt(log klog.Logger, some bool) {
	if some == f.doubted {
		return
	}
	f.doubted = some
	if some {
		log.Info("Not all manifests of static pods can be read; what runs of static pods that the others do not name goes on until they can", "source", f.src)
	}
	f.sink.Doubt(f.src, some)
}

// chosen is what counts of a source's entries.
type chosen struct {
	wanted map[types.UID]*v1.Pod
	owners map[types.NamespacedName]string // where the manifest of each name and UID is
	stale  map[types.UID]Stale             // go on though their manifests are broken
	broken []string
	doubt  bool // something could not be read since this process started
}

// choose says which entries count. Of those that hold the same name or UID (see uidName), that counts
// which had it before, else the first: who lays a copy beside a manifest stops no pod. One
// that another source has is left to it.
func (f *feed) choose(log klog.Logger, entries []*entry) chosen {
	c := chosen{
		wanted: map[types.UID]*v1.Pod{}, owners: map[types.NamespacedName]string{}, stale: map[types.UID]Stale{},
		broken: slices.Clone(f.restless), doubt: f.unseen,
	}
	for _, e := range f.ownersFirst(entries) {
		if e.err != nil {
			c.broken = append(c.broken, e.err.Error())
			c.doubt = c.doubt || e.pod == nil
		}
		if e.pod == nil {
			continue
		}
		if err := f.claim(c.owners, e); err != nil {
			c.broken = append(c.broken, err.Error())
			if e.twin != err.Error() {
				e.twin = err.Error()
				log.Error(err, "Static pod is left out")
				f.sources.deps.Events.Pod(e.pod, v1.EventTypeWarning, "FailedValidation", err.Error())
			}
			continue
		}
		e.twin = ""
		c.wanted[e.pod.UID] = e.pod
		if e.err != nil {
			c.stale[e.pod.UID] = Stale{Err: e.err, Since: e.since}
		}
	}
	return c
}

// claim takes an entry's name and UID for it; it is an error that another has one of them.
func (f *feed) claim(has map[types.NamespacedName]string, e *entry) error {
	keys := []types.NamespacedName{fullName(e.pod), uidName(e.pod)}
	i := slices.IndexFunc(keys, func(key types.NamespacedName) bool { return has[key] != "" })
	if i < 0 {
		i = f.sources.owners.claim(keys, f.src, e.where)
	}
	if i < 0 {
		has[keys[0]], has[keys[1]] = e.where, e.where
		return nil
	}
	first := has[keys[i]]
	if first == "" {
		first = f.sources.owners.where(keys[i])
	}
	if i == 0 {
		return fmt.Errorf("static pod manifest %s: pod %s (uid %s) is in %s too; rename one of them or remove one", e.where, keys[0], e.pod.UID, first)
	}
	return fmt.Errorf("static pod manifest %s: pod %s has the uid %s, and so has the pod in %s, or one that the name of a cgroup does not tell from it; give one of them another metadata.uid, or none", e.where, keys[0], e.pod.UID, first)
}

// publish gives the sink what has changed.
func (f *feed) publish(log klog.Logger, entries []*entry) {
	c := f.choose(log, entries)
	for uid := range f.running {
		if c.wanted[uid] == nil {
			delete(f.running, uid)
			f.sources.deps.Mirrors.RemoveStatic(uid)
			f.sink.Remove(uid, f.src)
		}
	}
	f.has = c.owners
	f.sources.stale.set(f.src, c.stale)
	f.sources.owners.keep(f.src, c.owners)
	for _, e := range entries { // in order, for the sake of the log
		if e.pod == nil || c.wanted[e.pod.UID] != e.pod || f.running[e.pod.UID] == e.pod {
			continue
		}
		f.running[e.pod.UID] = e.pod
		f.sources.deps.Mirrors.SetStatic(e.pod)
		f.sink.Set(e.pod, f.src)
	}
	f.doubt(log, c.doubt)
	f.sources.deps.Health.Set(f.health, len(c.broken) == 0, listed(c.broken))
}

// ownersFirst is entries, with those in front that have their name already.
func (f *feed) ownersFirst(entries []*entry) []*entry {
	later := func(e *entry) int {
		if e.pod != nil && f.has[fullName(e.pod)] == e.where {
			return 0
		}
		return 1
	}
	out := slices.Clone(entries)
	slices.SortStableFunc(out, func(a, b *entry) int { return later(a) - later(b) })
	return out
}

func fullName(pod *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// uidName is what a pod's UID is claimed by, beside the names, which have a namespace. It
// is the UID as a slice of systemd spells it, in which a dash has a meaning of its own:
// UIDs that differ in that only would share a cgroup.
func uidName(pod *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Name: strings.ReplaceAll(string(pod.UID), "-", "_")}
}

// mostListed is how many broken manifests are named at once.
const mostListed = 10

// listed names the first, and how many there are beside them.
func listed(broken []string) string {
	shown := strings.Join(broken[:min(len(broken), mostListed)], "; ")
	if more := len(broken) - mostListed; more > 0 {
		shown += fmt.Sprintf("; and %d more: the log and polylet manifest name them", more)
	}
	return shown
}

// owners says which source has a static pod's name, and its UID: who has it keeps it until
// it lets go. Safe for concurrent use.
type owners struct {
	mu    sync.Mutex
	names map[types.NamespacedName]owner
	// freed is told by source when a name has come free that it wanted.
	freed map[string]wake.Signal
}

type owner struct{ src, where string }

func newOwners() *owners {
	return &owners{names: map[types.NamespacedName]owner{}, freed: map[string]wake.Signal{
		File: wake.New(), HTTP: wake.New(),
	}}
}

// claim takes all of these names for a source, or none: then it returns the index of the
// first that another source has. It is -1 else.
func (o *owners) claim(names []types.NamespacedName, src, at string) (taken int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken = slices.IndexFunc(names, func(name types.NamespacedName) bool {
		has, ok := o.names[name]
		return ok && has.src != src
	})
	if taken >= 0 {
		return taken
	}
	for _, name := range names {
		o.names[name] = owner{src, at}
	}
	return -1
}

// where says what has a name.
func (o *owners) where(name types.NamespacedName) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cmp.Or(o.names[name].where, "another manifest")
}

// keep lets go of what src has beside these names.
func (o *owners) keep(src string, names map[types.NamespacedName]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	freed := false
	for name, has := range o.names {
		if _, kept := names[name]; has.src == src && !kept {
			delete(o.names, name)
			freed = true
		}
	}
	for other, c := range o.freed {
		if freed && other != src {
			c.Set()
		}
	}
}
