package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// exited checks an end, and notes what follows from it.
func (j *judge) exited(tr fakecri.Transition, f *facts, r *record) {
	delete(r.live, tr.ID)
	delete(j.hooking, tr.ID)
	if tr.From != fakecri.Running && f.sub.scripts[tr.Name].StartErr == nil {
		return // a start that was cut short is none
	}
	r.ended, r.id, r.endedAt, r.code, r.sandbox = true, tr.ID, tr.At, tr.ExitCode, tr.SandboxID
	if tr.From != fakecri.Running {
		r.startedAt = tr.At // it never ran
		return
	}
	ours := tr.Signal != "" && tr.Cause != "KillSandbox" && tr.Cause != "Reboot"
	if ours {
		r.stopped = true
		j.killed(tr, f)
	}
	// What is ended for its own sake, to start again, asks for nothing.
	if restartsAll(&f.sub.pod.Spec, tr.Name, tr.ExitCode) && !(ours && f.ofItsOwn(tr)) {
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
				f.ends("container "+tr.Name+" has ended", c.Name, tr.At)
			}
		}
		f.ends("container "+tr.Name+" has ended", ephemeral, tr.At)
	}
}

// shortestGrace is the least time between the first signal and the last one.
const shortestGrace = 2 * time.Second

// killed checks an end that podsync brought about.
func (j *judge) killed(tr fakecri.Transition, f *facts) {
	what := fmt.Sprintf("container %s of pod %s (%s, %s)", tr.Name, tr.Pod, tr.Cause, tr.Signal)
	// One that podsync made for an earlier round, also after the end that asked for the
	// next, may be ended for that.
	if r := j.record(tr.PodUID, tr.Name); (!f.unwanted.IsZero() || f.evictedBefore(tr.At)) && !f.ofItsOwn(tr) && r.round == f.rounds && r.madeFor >= f.rounds {
		f.stopping = true
	}
	if tr.Cause != "StopContainer" {
		j.violationLocked("%s was ended without being asked to end first", what)
		return
	}
	why, due := j.excuse(tr, f)
	switch {
	case why == "":
		j.violationLocked("%s was ended without a reason", what)
	case !j.prepared(tr, f):
		j.violationLocked("%s was ended because %s without its preStop hook", what, why)
	case tr.Signal == "KILL" && due > 0:
		j.violationLocked("%s was killed because %s, %v before its grace period ended", what, why, due)
	case !j.inTime(f, tr.Signal):
		j.violationLocked("%s was killed though it ends within its grace period", what)
	case tr.Signal == "KILL" && tr.At.Sub(tr.SignalledAt) < shortestGrace:
		j.violationLocked("%s was killed %v after the first signal", what, tr.At.Sub(tr.SignalledAt))
	}
}

// ofItsOwn says whether the container itself gave a reason to end it (a probe, a
// hook, an image), or its sandbox did: podsync need not know yet that the whole pod
// is to end.
func (f *facts) ofItsOwn(tr fakecri.Transition) bool {
	return slices.ContainsFunc(f.reasons, func(r reason) bool { return (r.container == tr.Name || r.passing) && !tr.At.Before(r.at) })
}

// excuse finds the best reason for a container's end: empty when there is none.
// due is how much of its grace period is left.
func (j *judge) excuse(tr fakecri.Transition, f *facts) (why string, due time.Duration) {
	for _, r := range f.reasons {
		if r.container != "" && r.container != tr.Name || tr.At.Before(r.at) {
			continue
		}
		left := max(j.begun(r, tr, f).Add(r.grace).Sub(tr.At), r.at.Add(r.least).Sub(tr.At))
		if why == "" || left < due {
			why, due = r.why, left
		}
	}
	return why, due
}
