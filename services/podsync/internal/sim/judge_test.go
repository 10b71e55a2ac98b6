package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// judge checks the invariants at each step. It knows what was asked for, sees
// what the runtime and the apiserver see, and keeps its own account of it.
type judge struct {
	w  *world
	mu sync.Mutex
	// facts are what was asked for with each pod, by name.
	facts map[string]*facts
	// owners are the pods by UID, from the first time that the UID was seen.
	owners map[string]*facts
	// names are the containers by pod UID and container name.
	names map[string]*record
	// made are the containers by id, as they were made.
	made map[string]fakecri.Transition
	// ready are the sandboxes that stand, by pod UID.
	ready map[string]map[string]bool
	// bounds are the volumes whose claims are bound, by name.
	bounds map[string]bool
	// networks are the sandboxes whose network is up, by pod UID.
	networks map[string]map[string]bool
	disks    account
	// hooking are the containers that run and whose postStart hook is not over, by id.
	hooking map[string]bool
	// images are what the registry has had under the name that pods run, oldest first;
	// none while nobody has pushed one.
	images []registered
	// notBefore is when pods may start whose start is to be put off.
	notBefore map[*subject]time.Time
	// away: podsync has died and does not run again yet.
	away bool
	// asks are podsync's calls for an end, by pod UID, in order.
	asks map[string][]ask
	// failures are when podsync was told that a liveness or startup probe of a container
	// has failed, by container id.
	failures map[string]time.Time
	// cut are the stops that podsync has cut short, by container id.
	cut map[string]cut
	// renewed are the pods that have a new sandbox in place of one that went, and
	// have not been told to be Pending again for it.
	renewed    map[string]bool
	disturbed  map[string]bool // pod UIDs that chaos has touched
	forgotten  map[string]bool // pod UIDs of which the runtime has forgotten everything
	critical   bool            // a critical pod was asked for
	violations []string
}

// facts are what was asked for with one pod.
type facts struct {
	sub *subject
	// since is when it was asked for.
	since time.Time
	// unwanted is when its deletion was first asked for.
	unwanted time.Time
	// change is when its image was changed.
	change time.Time
	// reasons to end its containers.
	reasons []reason
	// evictions are what podsync was asked to end it for, and has not declined.
	evictions []*eviction
	// stopping: its containers are being stopped for good.
	stopping bool
	// rounds is how often a container's end has asked for a restart of all, and
	// roundAt when it did so last.
	rounds  int
	roundAt time.Time
	// others is what the other pods asked for when it was asked for, those that had
	// not ended, and what they were resized to until it was rejected.
	others int64
	// unsure: podsync died between its call for a container's end and what was to
	// follow, and the next one cannot know why it has ended. That a probe has failed it
	// knows, unless what was kept of that is damaged.
	unsure bool
	// phase in the apiserver, and whether its object is gone from there.
	phase v1.PodPhase
	gone  bool
}

// reason is why a container may be ended: from a time on, and by force when the
// grace period is over.
type reason struct {
	why       string
	container string // empty: all
	at        time.Time
	grace     time.Duration
	// counts is from when on a call for an end may be for this reason, and at least
	// how long after the reason came up the container may be ended by force.
	counts time.Time
	least  time.Duration
	// shared: the whole pod ends, or what it needs does, so that the grace period is
	// one for all its containers. passing: the pod goes on after it.
	shared, passing bool
	// eviction is the call that gave the reason; nil for all others.
	eviction *eviction
}

// record is the account of one container name of one pod.
type record struct {
	live      map[string]bool // ids
	starts    int
	made      string // from which image and with which resources
	sandbox   string
	startedAt time.Time
	ended     bool
	id        string // of the container that ended
	endedAt   time.Time
	code      int32
	// removed: the runtime has forgotten that one; lost: how its pod has ended may have been
	// kept by podsync alone then, and that is damaged.
	removed, lost bool
	// round is the facts' rounds at the last start, madeFor the round that podsync
	// made it for; stopped: podsync ended it.
	round   int
	madeFor int
	stopped bool
	// wait is how long the next start waits after the end.
	wait time.Duration
}

func newJudge(w *world) *judge {
	return &judge{
		disks: newAccount(),

		w: w, facts: map[string]*facts{}, notBefore: map[*subject]time.Time{}, owners: map[string]*facts{}, names: map[string]*record{},
		made: map[string]fakecri.Transition{}, ready: map[string]map[string]bool{}, bounds: map[string]bool{}, networks: map[string]map[string]bool{},
		hooking: map[string]bool{}, asks: map[string][]ask{}, failures: map[string]time.Time{}, cut: map[string]cut{}, renewed: map[string]bool{}, disturbed: map[string]bool{}, forgotten: map[string]bool{},
	}
}

// violationLocked notes a broken promise.
func (j *judge) violationLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.w.tell("VIOLATION: " + text)
	if len(j.violations) < 10 {
		j.violations = append(j.violations, time.Now().UTC().Format("15:04:05.000")+": "+text)
	}
}

// fail notes a broken promise.
func (j *judge) fail(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.violationLocked(format, args...)
}

func (j *judge) found() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.violations)
}

func (s *subject) grace() time.Duration {
	return time.Duration(*s.pod.Spec.TerminationGracePeriodSeconds) * time.Second
}

func (j *judge) want(sub *subject) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := &facts{sub: sub, since: time.Now()}
	if limit := sub.pod.Spec.ActiveDeadlineSeconds; limit != nil {
		f.because("its active deadline", "", time.Now().Add(time.Duration(*limit)*time.Second).Truncate(time.Second), sub.grace())
	}
	for _, other := range j.facts {
		if !other.over() {
			f.others += other.sub.asks()
		}
	}
	j.facts[sub.pod.Name] = f
	j.makesRoomLocked(f)
}

// because adds a reason.
func (f *facts) because(why, container string, at time.Time, grace time.Duration) {
	f.reasons = append(f.reasons, reason{why: why, container: container, at: at, grace: grace, counts: at, shared: container == ""})
}

// ends adds a reason for one container to end as its pod does.
func (f *facts) ends(why, container string, at time.Time) {
	f.reasons = append(f.reasons, reason{why: why, container: container, at: at, grace: f.sub.grace(), counts: at, shared: true})
}

// changed notes that the first container's image was changed.
func (j *judge) changed(sub *subject) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := j.facts[sub.pod.Name]
	f.change = time.Now()
	f.because("its image was changed", sub.pod.Spec.Containers[0].Name, time.Now(), sub.grace())
}

// rewritten notes that the manifest of a static pod has now another image: it is
// another pod, and the old one is to end.
func (j *judge) rewritten(sub *subject) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := j.facts[sub.pod.Name]
	f.change = time.Now()
	f.because("its manifest was changed", "", time.Now(), sub.grace())
	sub.pod = sub.pod.DeepCopy()
	sub.pod.Spec.Containers[0].Image = newImage
}

func (j *judge) disturb(uid string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.disturbed[uid] = true
}

// wiped notes that the runtime has forgotten everything, back-offs with it. Which
// containers had ended is known from the apiserver alone: told has their ids.
func (j *judge) wiped(told map[string]bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for uid := range j.owners { // also of those that had a sandbox only
		j.forgotten[uid] = true
	}
	for key, r := range j.names {
		uid, _, _ := strings.Cut(key, "/")
		r.wait = 0
		if f := j.owners[uid]; f.sub.static || !told["containerd://"+r.id] {
			r.ended = false
		}
	}
}

// unwant notes a deletion.
func (j *judge) unwant(sub *subject, grace int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := j.facts[sub.pod.Name]
	allowed := sub.grace()
	if grace >= 0 {
		allowed = time.Duration(grace) * time.Second
	}
	r := reason{why: "it was deleted", at: time.Now(), grace: allowed, shared: true}
	if f.unwanted.IsZero() {
		f.unwanted = r.at
	}
	r.counts = r.at
	f.reasons = append(f.reasons, r)
}

// probed notes what a probe found.
func (j *judge) probed(key probeKey, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.w.tell("PROBE", "pod", key.uid, "container", key.container, "probe", key.probe.String(), "ok", ok)
	if f := j.owners[key.uid]; f != nil && !ok && key.probe != podsyncv1.ProbeType_PROBE_TYPE_READINESS {
		f.because("a probe failed", key.container, time.Now(), f.sub.grace())
	}
}

// hookFailed notes that the postStart hook of a container failed.
func (j *judge) hookFailed(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m, ok := j.made[id]; ok {
		j.owners[m.PodUID].because("its postStart hook failed", m.Name, time.Now(), j.owners[m.PodUID].sub.grace())
	}
}

// attempt is the restart count of a container.
func (j *judge) attempt(id string) uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.made[id].Attempt
}

func (j *judge) record(uid, name string) *record {
	key := uid + "/" + name
	if j.names[key] == nil {
		j.names[key] = &record{live: map[string]bool{}}
	}
	return j.names[key]
}
