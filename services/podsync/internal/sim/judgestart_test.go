package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

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
		j.violationLocked("the runtime has a %s of pod %s, for which nobody ever asked", tr.Kind, tr.Pod)
		return
	}
	j.owners[tr.PodUID] = f
	switch tr.Kind {
	case fakecri.KindSandbox:
		j.stood(tr)
		return
	case fakecri.KindNetwork:
		j.networked(tr)
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
				j.newest(tr, f, c)
			}
		}
		j.started(tr, f, r, made, round)
		j.fits(tr, f)
	case tr.To == fakecri.Exited:
		j.exited(tr, f, r)
	case tr.To == fakecri.Removed && len(r.live) > 0 && r.live[tr.ID]:
		j.violationLocked("container %s of pod %s was removed while it ran", tr.Name, tr.Pod)
	case tr.To == fakecri.Removed && r.ended && r.id == tr.ID:
		r.removed = true
	}
}

// stood checks that a pod has one sandbox that stands at most.
func (j *judge) stood(tr fakecri.Transition) {
	ready := j.ready[tr.PodUID]
	if ready == nil {
		ready = map[string]bool{}
		j.ready[tr.PodUID] = ready
	} else if tr.To == fakecri.Ready {
		j.renewed[tr.PodUID] = true
	}
	delete(ready, tr.ID)
	if tr.To != fakecri.Ready {
		if len(ready) == 0 && tr.To == fakecri.NotReady {
			j.disks.down[tr.PodUID] = time.Now()
		}
		return
	}
	ready[tr.ID] = true
	if len(ready) > 1 {
		j.violationLocked("%d sandboxes of pod %s stand at once", len(ready), tr.Pod)
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
			j.violationLocked("container %s of pod %s was started before %s had come so far", tr.Name, tr.Pod, c.Name)
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
		j.violationLocked("%d live containers %s of pod %s", len(r.live), tr.Name, tr.Pod)
	}
	if f.stopping {
		j.violationLocked("container %s of pod %s was started after its pod's end had begun", tr.Name, tr.Pod)
	}
	// That a static pod has ended is known to podsync's own life only.
	if !f.sub.static && ended(&v1.Pod{Status: v1.PodStatus{Phase: f.phase}}) {
		j.violationLocked("container %s of pod %s was started though the pod is %s", tr.Name, tr.Pod, f.phase)
	}
	j.comesBack(tr, f)
	j.tooSoon(tr.At, f)
	j.ordered(tr, f)
	j.hooked(tr, f)
	j.hookBegins(tr, f)
	j.furnished(tr, f)
	fresh := r.made != "" && made != r.made
	if r.ended {
		j.restarted(tr, f, r, fresh, round)
	}
	r.starts++
	r.round, r.madeFor, r.stopped = f.rounds, round, false
	r.made, r.sandbox, r.startedAt, r.ended, r.removed, r.lost = made, tr.SandboxID, tr.At, false, false, false
}

// restarted checks that a start after an end is allowed, and not too early.
func (j *judge) restarted(tr fakecri.Transition, f *facts, r *record, fresh bool, round int) {
	spec := &f.sub.pod.Spec
	again, init := restarts(spec, tr.Name, r.code)
	again = again || j.owed(tr.PodUID, spec, tr.Name, r)
	anew := init && r.code == 0 && r.sandbox != tr.SandboxID // a new sandbox begins with the init containers
	// What a restart of all containers ended is not to blame for it; a start that
	// was under way when it was asked for may be of either round.
	earlier := r.round < f.rounds || r.madeFor < round && round <= f.rounds
	byRound := f.rounds > 0 && (earlier || r.stopped) && !restartsAll(spec, tr.Name, r.code)
	switch {
	case byRound:
		return
	case fresh && (again || r.stopped || j.wasAsked(tr.PodUID, r.id)), anew: // a changed definition ends what runs, and starts nothing that has finished
		r.wait = 0
		return
	case !again && r.lost:
		r.wait = 0
		return
	case !again:
		j.violationLocked("container %s of pod %s was started again after exit code %d, against its policy %s", tr.Name, tr.Pod, r.code, spec.RestartPolicy)
		return
	}
	wait := r.wait
	if r.endedAt.Sub(r.startedAt) >= 10*time.Minute {
		wait = 0
	}
	if early := wait - tr.At.Sub(r.endedAt); early > 0 {
		j.violationLocked("container %s of pod %s was started again %v before its back-off of %v was over", tr.Name, tr.Pod, early, wait)
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
