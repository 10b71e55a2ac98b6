package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/cri"
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
	ready      map[string]map[string]bool
	disturbed  map[string]bool // pod UIDs that chaos has touched
	forgotten  map[string]bool // pod UIDs of which the runtime has forgotten everything
	critical   bool            // a critical pod was asked for
	violations []string
}

// facts are what was asked for with one pod.
type facts struct {
	sub *subject
	// unwanted is when its deletion was first asked for.
	unwanted time.Time
	// change is when its image was changed.
	change time.Time
	// reasons to end its containers.
	reasons []reason
	// stopping: its containers are being stopped for good.
	stopping bool
	// rounds is how often a container's end has asked for a restart of all, and
	// roundAt when it did so last.
	rounds  int
	roundAt time.Time
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
		w: w, facts: map[string]*facts{}, owners: map[string]*facts{}, names: map[string]*record{},
		made: map[string]fakecri.Transition{}, ready: map[string]map[string]bool{}, disturbed: map[string]bool{}, forgotten: map[string]bool{},
	}
}

// violation notes a broken promise. The lock is held.
func (j *judge) violation(format string, args ...any) {
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
	j.violation(format, args...)
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
	f := &facts{sub: sub}
	if limit := sub.pod.Spec.ActiveDeadlineSeconds; limit != nil {
		f.because("its active deadline", "", time.Now().Add(time.Duration(*limit)*time.Second).Truncate(time.Second), sub.grace())
	}
	j.facts[sub.pod.Name] = f
	j.makesRoom(f)
}

// because adds a reason.
func (f *facts) because(why, container string, at time.Time, grace time.Duration) {
	f.reasons = append(f.reasons, reason{why, container, at, grace})
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
	if f.unwanted.IsZero() {
		f.unwanted = time.Now()
	} else {
		// A period that is shortened counts from the first request, but leaves the
		// least that a container gets.
		allowed = max(time.Until(f.unwanted.Add(allowed)), shortestGrace)
	}
	f.because("it was deleted", "", time.Now(), allowed)
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

// transition checks one step of the runtime.
func (j *judge) transition(tr fakecri.Transition, v fakecri.View) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if tr.Kind == fakecri.KindImage {
		return
	}
	j.w.tell("RUNTIME", "kind", tr.Kind, "pod", tr.Pod, "name", tr.Name, "attempt", tr.Attempt, "from", tr.From, "to", tr.To,
		"cause", tr.Cause, "signal", tr.Signal, "grace", tr.Grace.String(), "code", tr.ExitCode)
	f := j.facts[strings.TrimSuffix(tr.Pod, "-"+nodeName)]
	if f == nil {
		j.violation("the runtime has a %s of pod %s, for which nobody ever asked", tr.Kind, tr.Pod)
		return
	}
	j.owners[tr.PodUID] = f
	if tr.Kind != fakecri.KindContainer {
		j.stood(tr)
		return
	}
	r := j.record(tr.PodUID, tr.Name)
	switch {
	case tr.To == fakecri.Created:
		j.made[tr.ID] = tr
	case tr.To == fakecri.Running:
		made, round := "", 0
		for _, c := range v.Live(tr.PodUID, tr.Name) {
			if c.ID == tr.ID {
				made, round = madeOf(c), roundOf(c)
				j.entitled(tr, f, c.Config.GetImage().GetUserSpecifiedImage())
			}
		}
		j.started(tr, f, r, made, round)
		j.fits(tr, f)
	case tr.To == fakecri.Exited:
		j.exited(tr, f, r)
	case tr.To == fakecri.Removed && len(r.live) > 0 && r.live[tr.ID]:
		j.violation("container %s of pod %s was removed while it ran", tr.Name, tr.Pod)
	}
}

// stood checks that a pod has one sandbox that stands at most.
func (j *judge) stood(tr fakecri.Transition) {
	ready := j.ready[tr.PodUID]
	if ready == nil {
		ready = map[string]bool{}
		j.ready[tr.PodUID] = ready
	}
	delete(ready, tr.ID)
	if tr.To != fakecri.Ready {
		return
	}
	ready[tr.ID] = true
	if len(ready) > 1 {
		j.violation("%d sandboxes of pod %s stand at once", len(ready), tr.Pod)
	}
}

// ordered checks that what a container waits for has come: the init containers
// before it have done their work in this sandbox, the sidecars before it have
// been started in it.
func (j *judge) ordered(tr fakecri.Transition, f *facts) {
	spec := &f.sub.pod.Spec
	if isEphemeral(tr.Name) {
		return
	}
	// What a restart of all containers ended, or what asked for it, comes after the
	// init containers once more; another start may have been under way meanwhile.
	me := j.record(tr.PodUID, tr.Name)
	again := me.ended && !me.endedAt.Before(f.roundAt) && (me.stopped || restartsAll(spec, tr.Name, me.code))
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.Name == tr.Name {
			return
		}
		r := j.record(tr.PodUID, c.Name)
		done := r.ended && r.code == 0 && (r.round == f.rounds || !again)
		if sidecar(c) {
			done = r.starts > 0
		}
		if r.sandbox != tr.SandboxID || !done {
			j.violation("container %s of pod %s was started before %s had come so far", tr.Name, tr.Pod, c.Name)
			return
		}
	}
}

func sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// madeOf is what of a container's definition makes another one of it.
func madeOf(c fakecri.ContainerInfo) string {
	r := c.Config.GetLinux().GetResources()
	return fmt.Sprint(c.Config.GetImage().GetUserSpecifiedImage(), r.GetCpuShares(), r.GetMemoryLimitInBytes())
}

// roundOf is for which restart of all its pod's containers one was made.
func roundOf(c fakecri.ContainerInfo) int {
	round, err := strconv.Atoi(c.Config.GetAnnotations()[cri.AnnotationRound])
	if err != nil {
		return 0
	}
	return round
}

// started checks a start.
func (j *judge) started(tr fakecri.Transition, f *facts, r *record, made string, round int) {
	r.live[tr.ID] = true
	if len(r.live) > 1 {
		j.violation("%d live containers %s of pod %s", len(r.live), tr.Name, tr.Pod)
	}
	if f.stopping {
		j.violation("container %s of pod %s was started after its pod's end had begun", tr.Name, tr.Pod)
	}
	// That a static pod has ended is known to podsync's own life only.
	if !f.sub.static && ended(&v1.Pod{Status: v1.PodStatus{Phase: f.phase}}) {
		j.violation("container %s of pod %s was started though the pod is %s", tr.Name, tr.Pod, f.phase)
	}
	j.ordered(tr, f)
	j.furnished(tr, f)
	fresh := r.made != "" && made != r.made
	if r.ended {
		j.restarted(tr, f, r, fresh, round)
	}
	r.starts++
	r.round, r.madeFor, r.stopped = f.rounds, round, false
	r.made, r.sandbox, r.startedAt, r.ended = made, tr.SandboxID, tr.At, false
}

// restarted checks that a start after an end is allowed, and not too early.
func (j *judge) restarted(tr fakecri.Transition, f *facts, r *record, fresh bool, round int) {
	spec := &f.sub.pod.Spec
	again, init := restarts(spec, tr.Name, r.code)
	anew := init && r.code == 0 && r.sandbox != tr.SandboxID // a new sandbox begins with the init containers
	// What a restart of all containers ended is not to blame for it; a start that
	// was under way when it was asked for may be of either round.
	earlier := r.round < f.rounds || r.madeFor < round && round <= f.rounds
	byRound := f.rounds > 0 && (earlier || r.stopped) && !restartsAll(spec, tr.Name, r.code)
	switch {
	case byRound:
		return
	case fresh, anew:
		r.wait = 0
		return
	case !again:
		j.violation("container %s of pod %s was started again after exit code %d, against its policy %s", tr.Name, tr.Pod, r.code, spec.RestartPolicy)
		return
	}
	wait := r.wait
	if r.endedAt.Sub(r.startedAt) >= 10*time.Minute {
		wait = 0
	}
	if early := wait - tr.At.Sub(r.endedAt); early > 0 {
		j.violation("container %s of pod %s was started again %v before its back-off of %v was over", tr.Name, tr.Pod, early, wait)
	}
	if wait == 0 {
		r.wait = 10 * time.Second
	} else {
		r.wait = min(2*wait, 5*time.Minute)
	}
}

// restarts says whether a container's policy lets it start again after an exit,
// and whether it is an ordinary init container.
func restarts(spec *v1.PodSpec, name string, code int32) (again, init bool) {
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.Name == name {
			if sidecar(c) {
				return true, false
			}
			return code != 0 && spec.RestartPolicy != v1.RestartPolicyNever, true
		}
	}
	policy := spec.RestartPolicy
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if c.Name != name {
			continue
		}
		for _, rule := range c.RestartPolicyRules {
			if slices.Contains(rule.ExitCodes.Values, code) {
				return true, false
			}
		}
		if c.RestartPolicy != nil {
			policy = v1.RestartPolicy(*c.RestartPolicy)
		}
	}
	switch {
	case isEphemeral(name):
		return false, false
	case policy == v1.RestartPolicyAlways:
		return true, false
	}
	return policy == v1.RestartPolicyOnFailure && code != 0, false
}

// exited checks an end, and notes what follows from it.
func (j *judge) exited(tr fakecri.Transition, f *facts, r *record) {
	delete(r.live, tr.ID)
	if tr.From != fakecri.Running && f.sub.scripts[tr.Name].StartErr == nil {
		return // a start that was cut short is none
	}
	r.ended, r.id, r.endedAt, r.code, r.sandbox = true, tr.ID, tr.At, tr.ExitCode, tr.SandboxID
	if tr.From != fakecri.Running {
		r.startedAt = tr.At // it never ran
		return
	}
	if ours := tr.Signal != "" && tr.Cause != "KillSandbox" && tr.Cause != "Reboot"; ours {
		r.stopped = true
		j.killed(tr, f)
	}
	if restartsAll(&f.sub.pod.Spec, tr.Name, tr.ExitCode) {
		f.rounds, f.roundAt = f.rounds+1, tr.At
		f.because("container "+tr.Name+" restarts all", "", tr.At, 0)
	}
	if isEphemeral(tr.Name) {
		return
	}
	again, init := restarts(&f.sub.pod.Spec, tr.Name, tr.ExitCode)
	if !again && (!init || tr.ExitCode != 0) {
		for _, c := range f.sub.pod.Spec.InitContainers {
			if sidecar(&c) {
				f.because("container "+tr.Name+" has ended", c.Name, tr.At, f.sub.grace())
			}
		}
		f.because("container "+tr.Name+" has ended", ephemeral, tr.At, f.sub.grace())
	}
}

// shortestGrace is the least time between the first signal and the last one.
const shortestGrace = 2 * time.Second

// killed checks an end that podsync brought about.
func (j *judge) killed(tr fakecri.Transition, f *facts) {
	what := fmt.Sprintf("container %s of pod %s (%s, %s)", tr.Name, tr.Pod, tr.Cause, tr.Signal)
	if !f.unwanted.IsZero() && !f.ofItsOwn(tr) && j.record(tr.PodUID, tr.Name).round == f.rounds {
		f.stopping = true
	}
	if tr.Cause != "StopContainer" {
		j.violation("%s was ended without being asked to end first", what)
		return
	}
	why, due := f.excuse(tr)
	switch {
	case why == "":
		j.violation("%s was ended without a reason", what)
	case tr.Signal == "KILL" && due > 0:
		j.violation("%s was killed because %s, %v before its grace period ended", what, why, due)
	case tr.Signal == "KILL" && tr.At.Sub(tr.SignalledAt) < shortestGrace:
		j.violation("%s was killed %v after the first signal", what, tr.At.Sub(tr.SignalledAt))
	}
}

// ofItsOwn says whether the container itself gave a reason to end it (a probe, a
// hook, an image): podsync need not know yet that the whole pod is to end.
func (f *facts) ofItsOwn(tr fakecri.Transition) bool {
	return slices.ContainsFunc(f.reasons, func(r reason) bool { return r.container == tr.Name && !tr.At.Before(r.at) })
}

// excuse finds the best reason for a container's end: empty when there is none.
// due is how much of its grace period is left.
func (f *facts) excuse(tr fakecri.Transition) (why string, due time.Duration) {
	for _, r := range f.reasons {
		if r.container != "" && r.container != tr.Name || tr.At.Before(r.at) {
			continue
		}
		left := r.at.Add(r.grace).Sub(tr.At)
		if why == "" || left < due {
			why, due = r.why, left
		}
	}
	return why, due
}
