package sim

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// owed says whether a container that podsync ended for a reason that passes (a
// probe, a hook, its definition, its sandbox), or was about to end, is to start
// again though its exit alone would not let it.
func (j *judge) owed(uid string, spec *v1.PodSpec, name string, r *record) bool {
	if !r.ended || !r.stopped && !j.wasAsked(uid, r.id) || isEphemeral(name) {
		return false
	}
	policy := spec.RestartPolicy
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name == name {
			if c.RestartPolicy != nil {
				policy = v1.RestartPolicy(*c.RestartPolicy)
			}
			return policy != v1.RestartPolicyNever
		}
	}
	return false
}

// owes says whether a container that has ended is owed a start.
func (j *judge) owes(sub *subject, uid, name string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.record(uid, name)
	return r.stopped && j.owed(uid, &sub.pod.Spec, name, r)
}

// wasAsked says whether podsync has asked a container to stop.
func (j *judge) wasAsked(uid, id string) bool {
	return slices.ContainsFunc(j.asks[uid], func(a ask) bool { return a.id == id })
}

// told notes that podsync has results of probes.
func (j *judge) told(results []*podsyncv1.ProbeResult) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range results {
		if r.GetOutcome() == podsyncv1.ProbeOutcome_PROBE_OUTCOME_FAILURE && r.GetKey().GetType() != podsyncv1.ProbeType_PROBE_TYPE_READINESS {
			j.failures[r.GetContainerId()] = time.Now()
		}
	}
}

// damaged notes that what podsync keeps of probes, and of pods that have ended, is damaged.
// What it had kept when it died is not known to the next one then.
func (j *judge) damaged() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.failures)
	j.forgetEvictionsLocked()
	for _, r := range j.names {
		r.lost = r.ended && r.removed
	}
	if j.away {
		j.unsureLocked()
	}
}

// backAgain notes that podsync runs again.
func (j *judge) backAgain() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.away = false
	j.disks.up = time.Now()
	clear(j.disks.drivers)
}

// interrupted notes that podsync has died: why it asks containers to stop, but for a
// probe that it had a moment to keep, and what their postStart hooks do, is not known
// any more.
func (j *judge) interrupted() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.hooking)
	j.away = true
	j.unsureLocked()
}

// unsureLocked marks the pods of which a container was asked to stop for a reason that
// podsync cannot know any more.
func (j *judge) unsureLocked() {
	for uid, asks := range j.asks {
		for _, a := range asks {
			at, failed := j.failures[a.id]
			kept := failed && time.Now().After(at)
			if r := j.record(uid, j.made[a.id].Name); !kept && (r.live[a.id] || r.ended && r.id == a.id) {
				j.owners[uid].unsure = true
			}
		}
	}
}

// killedByProbe makes a pod whose liveness or startup probe fails once; its process
// takes the signal and exits with 0.
func killedByProbe(m *maker, startup bool) {
	m.policy([]v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}[m.rng.IntN(3)], runs)
	if m.spec.RestartPolicy == v1.RestartPolicyNever {
		m.end = succeeds
	}
	c := m.main(fakecri.Script{OnTerm: fakecri.Term{After: time.Duration(m.rng.Int64N(int64(m.grace() + time.Second)))}})
	if m.scripts[c.Name].OnTerm.After > m.grace() { // the signal that is not waited for ends it, with 137
		m.scripts[c.Name] = fakecri.Script{}
	}
	if startup {
		c.StartupProbe = probe()
		m.probes[c.Name] = probeScript{startup: []turn{{m.short() + 3*time.Second, false}}}
		return
	}
	c.LivenessProbe = probe()
	m.probes[c.Name] = probeScript{liveness: []turn{{time.Second, true}, {m.short() + 3*time.Second, false}}}
}
