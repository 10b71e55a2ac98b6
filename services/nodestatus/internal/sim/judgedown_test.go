package sim

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/services/nodestatus"
)

const (
	// hears is how long the apiserver is waited for at the end of a shutdown.
	hears = 10 * time.Second
	// follows is how long nodestatus may take to do what is to be done in a shutdown.
	follows = 6 * time.Second
)

// downGroups are the groups of the shutdown that there is, with the time that they have
// together cut to that for which the machine waits.
func (j *judge) downGroups() []nodestatus.ShutdownGroup {
	out, delay := slices.Clone(j.w.scenario.groups), j.w.down.delay
	if all := periods(out); delay > 0 && delay < all {
		for i := range out {
			out[i].Period = time.Duration(math.Round(float64(out[i].Period) * (float64(delay) / float64(all))))
		}
	}
	return out
}

func periods(groups []nodestatus.ShutdownGroup) (all time.Duration) {
	for _, g := range groups {
		all += g.Period
	}
	return all
}

// groupOf is the group of a pod: the last whose priority is not above its own.
func groupOf(groups []nodestatus.ShutdownGroup, p *pod) (i int) {
	for k := range groups {
		if groups[k].Priority <= p.priority {
			i = k
		}
	}
	return i
}

func (j *judge) begunLocked() {
	clear(j.groupAt)
	j.settled = time.Time{}
}

// goesDownLocked judges that a pod is ended because the machine goes down.
func (j *judge) goesDownLocked(run *run, p *pod, r *podsyncv1.StopPodRequest) {
	if r.GetReason() != "Terminated" || r.GetMessage() != "Pod was terminated in response to imminent node shutdown." {
		j.violationLocked("%v was stopped in a shutdown with %q: %q", p, r.GetReason(), r.GetMessage())
	}
	d, now := j.w.down, time.Now()
	switch {
	case d == nil || len(j.w.scenario.groups) == 0:
		j.violationLocked("%v was stopped though the machine does not go down", p)
		return
	case !d.off.IsZero():
		if slow := j.wrongLocked(d.off, "podsync"); now.Sub(d.off) > 100*time.Millisecond && !slow {
			j.violationLocked("%v was stopped though the shutdown was called off %s before", p, now.Sub(d.off))
		}
		return
	}
	groups := j.downGroups()
	own := groupOf(groups, p)
	if j.groupAt[own].IsZero() {
		j.groupAt[own] = now
	}
	if grace := r.GetGrace().AsDuration(); !slices.ContainsFunc(groups[own:], func(g nodestatus.ShutdownGroup) bool { return g.Period == grace }) && grace != hears {
		j.violationLocked("%v was given %s in a shutdown, and its group has %s", p, grace, groups[own].Period)
	}
	for _, q := range j.w.podsLocked() {
		g := groupOf(groups, q)
		if g >= own || !q.listed || j.hadItsTimeLocked(groups, g) {
			continue
		}
		switch {
		case q.alive && q.began.Before(d.since):
			j.violationLocked("%v (priority %d) was stopped before %v (priority %d) has ended or had its time", p, p.priority, q, q.priority)
		case !q.alive && j.w.machine.uses[q.name].volumeThere():
			j.violationLocked("%v was stopped before the volumes of %v were taken down or its time was over", p, q)
		}
	}
}

// hadItsTimeLocked says whether the time of a group may be over.
func (j *judge) hadItsTimeLocked(groups []nodestatus.ShutdownGroup, g int) bool {
	const early = 50 * time.Millisecond
	now, until := time.Now().Add(early), j.w.down.since.Add(periods(groups[:g+1]))
	for i := g; i >= 0; i-- { // Who was before it may have had none to end.
		if first := j.groupAt[i]; !first.IsZero() {
			if at := first.Add(periods(groups[i : g+1])); at.Before(until) {
				until = at
			}
			break
		}
	}
	return !now.Before(until)
}

// restLocked is what the machine has to wait for yet: pods that run, and ends that the
// apiserver has not heard of.
func (j *judge) restLocked() (running, untold *pod) {
	for _, p := range j.w.podsLocked() {
		switch {
		case !p.listed:
		case p.alive:
			running = p
		case p.object.Status.Phase == v1.PodRunning:
			untold = p
		}
	}
	return running, untold
}

// doneLocked judges that nodestatus lets the machine go down.
func (j *judge) doneLocked(since time.Time) {
	d, now := j.w.down, time.Now()
	if d == nil || !d.since.Equal(since) {
		j.violationLocked("nodestatus lets a shutdown go on that there is not: %s", since)
		return
	}
	if !d.off.IsZero() {
		return
	}
	for _, p := range j.w.podsLocked() {
		if p.alive && p.listed && p.stop == nil && p.began.Before(d.since) && !j.wrongLocked(d.since, "podsync") && !j.wrongLocked(d.since.Add(-time.Minute), "full") {
			j.violationLocked("the machine goes down, and %v was never stopped", p)
		}
	}
	groups := j.downGroups()
	if !now.Before(d.since.Add(periods(groups) - 50*time.Millisecond)) {
		return
	}
	running, untold := j.restLocked()
	switch {
	case running != nil && !j.hadItsTimeLocked(groups, groupOf(groups, running)):
		j.violationLocked("the machine goes down after %s, and %v has not ended nor had its time", now.Sub(d.since), running)
	case untold != nil && now.Sub(untold.ended) < hears-time.Second:
		j.violationLocked("the machine goes down %s after the end of %v, and the apiserver has not heard of it", now.Sub(untold.ended), untold)
	}
}

// downLocked judges each second that a shutdown goes on, and that podsync knows of it.
func (j *judge) downLocked() {
	if len(j.w.scenario.groups) == 0 {
		return
	}
	now, calm, d := time.Now(), j.calmLocked("podsync", "nodestatus", "full"), j.w.down
	if j.w.closed == j.w.goingLocked() || j.w.podsync.down {
		j.gaped = time.Time{}
	} else if j.gaped.IsZero() {
		j.gaped = now
	}
	if !j.gaped.IsZero() && now.Sub(latest(j.gaped, calm)) > follows {
		j.violationLocked("the machine goes down: %v; that podsync admits no pod: %v, since %s", j.w.goingLocked(), j.w.closed, now.Sub(j.gaped))
		j.gaped = now
	}
	if !j.w.goingLocked() {
		return
	}
	if running, untold := j.restLocked(); running != nil || untold != nil {
		j.settled = time.Time{}
	} else if j.settled.IsZero() {
		j.settled = now
	}
	over := d.since.Add(periods(j.downGroups()))
	if quiet := j.settled; !quiet.IsZero() && quiet.Add(emptying*2).Before(over) {
		over = quiet.Add(emptying * 2) // Volumes are waited for, too.
	}
	if now.Sub(latest(over, calm)) > follows {
		j.violationLocked("the machine is kept from going down since %s, for nothing", now.Sub(d.since))
		d.since = now
	}
}
