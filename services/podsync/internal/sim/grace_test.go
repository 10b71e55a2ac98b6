package sim

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func now() time.Time { return time.Now() }

// ask is when podsync asked a container to stop: its call, be it the preStop
// hook or the stop itself.
type ask struct {
	at      time.Time
	id      string
	preStop bool
}

// calls notes what podsync is about to ask of the runtime.
func (j *judge) calls(req any) {
	switch q := req.(type) {
	case *runtimeapi.StopContainerRequest:
		j.asked(q.GetContainerId(), false)
	case *runtimeapi.ExecSyncRequest:
		if q.GetCmd()[0] == preStop {
			j.asked(q.GetContainerId(), true)
		}
	}
}

// asked notes that podsync asks a container to stop.
func (j *judge) asked(id string, preStop bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m, ok := j.made[id]; ok {
		j.asks[m.PodUID] = append(j.asks[m.PodUID], ask{now(), id, preStop})
	}
}

// cut is a stop that podsync has cut short: when, and when it would have been over.
type cut struct{ at, until time.Time }

// soonAfter is how long after a stop was cut short the next one may be held up by
// something else.
const soonAfter = time.Second

// stopOver checks a stop that has returned: that it was to be over no later than
// the one that was cut short for it. left says that podsync itself has ended it.
func (j *judge) stopOver(stop *runtimeapi.StopContainerRequest, began time.Time, left bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	id, until := stop.GetContainerId(), began.Add(time.Duration(stop.GetTimeout())*time.Second)
	if before, ok := j.cut[id]; ok && until.After(before.until) && began.Sub(before.at) < soonAfter {
		j.violationLocked("the stop of container %s of pod %s was begun anew and is over %v later than before", j.made[id].Name, j.made[id].Pod, until.Sub(before.until))
	}
	if delete(j.cut, id); left {
		j.cut[id] = cut{now(), until}
	}
}

// begun is when a reason's grace period began for a container: when somebody
// first asked for its end because of it, or, when the pod ends with it, for the end
// of any of its containers. One that was being stopped already, for another
// reason, need not be asked again; nor need a sidecar that waits for those that
// are. Nobody could ask while podsync was away.
func (j *judge) begun(r reason, tr fakecri.Transition, f *facts) time.Time {
	for _, a := range j.asks[tr.PodUID] {
		if r.shared && a.at.Before(r.counts) && f.endsWithPod(tr.Name, a.at) && f.endsWithPod(j.made[a.id].Name, a.at) {
			return r.counts
		}
		if a.id == tr.ID && a.at.Before(r.counts) {
			if r.passing {
				return a.at // podsync may have seen it before the judge
			}
			return r.counts
		}
		if !a.at.Before(r.counts) && (r.shared || a.id == tr.ID) {
			return a.at
		}
	}
	return tr.At
}

// endsWithPod says whether there was a reason by then to end a container together
// with its pod: the pod's own end, or for a sidecar that of those that need it.
func (f *facts) endsWithPod(name string, at time.Time) bool {
	return slices.ContainsFunc(f.reasons, func(r reason) bool {
		return r.shared && !r.passing && (r.container == "" || r.container == name) && !at.Before(r.at)
	})
}

// prepared checks that a container that podsync ended had its preStop hook, if it
// has one and there was time for it.
func (j *judge) prepared(tr fakecri.Transition, f *facts) bool {
	for _, c := range f.sub.pod.Spec.Containers {
		if c.Name != tr.Name || c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
			continue
		}
		for _, a := range j.asks[tr.PodUID] {
			if a.id == tr.ID && a.preStop {
				return true
			}
		}
		return f.hasty(tr)
	}
	return true
}

// hasty says whether a reason for a container's end leaves it no time.
func (f *facts) hasty(tr fakecri.Transition) bool {
	for _, r := range f.reasons {
		if (r.container == "" || r.container == tr.Name) && !tr.At.Before(r.at) && r.grace <= shortestGrace {
			return true
		}
	}
	return false
}

// away kills podsync, and lets no other be started for a while.
func (w *world) away(long time.Duration) {
	w.mu.Lock()
	w.pause = long
	w.mu.Unlock()
	w.crash("SIGKILL")
}

// takePause is how long the next podsync is to be waited for; zero when nobody
// said so.
func (w *world) takePause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.pause
	w.pause = 0
	return d
}
