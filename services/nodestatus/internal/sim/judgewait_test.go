package sim

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// soonest is how long memory and processes may be short before somebody goes, who may,
	// and slowest disks, of which directories are measured and things are removed first.
	soonest = 15 * time.Second
	slowest = 75 * time.Second
	// knownIn is how long a shortage may last that podsync is not told of.
	knownIn = 4 * time.Second
)

var peers = []string{"stats", "podsync", "nodestatus", "figures", "hung", "full", "files"}

// tickLocked judges each second what should have happened.
func (j *judge) tickLocked() {
	for _, k := range j.marks {
		j.waitedLocked(k)
	}
	for _, kind := range []string{"MemoryPressure", "DiskPressure", "PIDPressure"} {
		j.pressureLocked(kind)
	}
	j.nodeLocked()
	j.downLocked()
	j.breachesLocked()
	j.forgottenLocked()
	for p, a := range j.asks {
		if !p.alive && time.Since(p.ended) > 2*time.Minute || p.alive && p.stop == nil && time.Since(a.at) > 3*time.Minute {
			delete(j.asks, p)
		}
	}
}

// waitedLocked judges that somebody goes when something is short for long.
func (j *judge) waitedLocked(k *mark) {
	now := time.Now()
	if k.since.IsZero() {
		return
	}
	bound := soonest
	if isDisk(k.r) {
		bound = slowest
	}
	begins := k.since
	if k.soft { // Its grace period begins when it is told of, to each run anew.
		begins = latest(k.since, k.met, j.w.run.began)
	}
	from := latest(begins.Add(k.grace), j.calmLocked(peers...), j.progress)
	if now.Sub(from) <= bound {
		return
	}
	candidates := 0
	for _, p := range j.w.podsLocked() {
		if (j.evictableLocked(p) || j.untakenLocked(p)) && p.ranked(k.r, bound) {
			candidates++
		}
		if s := p.stop; s != nil && j.busyLocked(p, k) {
			j.progress = now
			return
		}
	}
	if candidates > 0 {
		j.violationLocked("%s is short since %s, and nobody goes", k.signal, now.Sub(k.since))
		j.progress = now
	}
}

// busyLocked says whether a threshold may wait for a pod that is ending.
func (j *judge) busyLocked(p *pod, k *mark) bool {
	s, a := p.stop, j.asks[p]
	switch {
	case time.Since(s.since) > s.grace+patience+emptying:
		return false
	case !p.alive:
		return isDisk(k.r) && time.Since(p.ended) < emptying+time.Second
	case !k.soft && condition(k.r) == "MemoryPressure" && a != nil && a.mark != nil:
		// It does not wait for another kind, nor for time that a soft threshold has given.
		return condition(a.mark.r) == "MemoryPressure" && s.grace <= atOnce
	}
	return true
}

func latest(times ...time.Time) (out time.Time) {
	for _, t := range times {
		if t.After(out) {
			out = t
		}
	}
	return out
}

// pressureLocked judges what podsync knows of a pressure.
func (j *judge) pressureLocked(kind string) {
	now, t := time.Now(), j.w.told
	told := t != nil && now.Before(t.until) && slices.Contains(t.conditions, kind)
	calm := j.calmLocked(peers...)
	var until time.Time
	for _, k := range j.marks {
		if condition(k.r) != kind {
			continue
		}
		if !told && !k.since.IsZero() && now.Sub(latest(k.since, calm)) > knownIn {
			j.violationLocked("podsync does not know of %s, for %s is short since %s", kind, k.signal, now.Sub(k.since))
			k.since = now
		}
		if !k.shown.IsZero() && k.quiet.IsZero() {
			until = now.Add(time.Hour)
		}
		until = latest(until, k.quiet)
	}
	if told && now.After(latest(latest(until, j.seeded).Add(j.w.scenario.transition), calm).Add(10*time.Second)) {
		j.violationLocked("podsync is told of %s, and it is over since %s", kind, now.Sub(until))
		j.w.told.conditions = nil
	}
}

// nodeLocked judges that the Node says what podsync knows.
func (j *judge) nodeLocked() {
	now := time.Now()
	if now.Second()%5 != 0 {
		return
	}
	same := true
	if n := j.w.api.Node(nodeName); n != nil && j.w.told != nil {
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeMemoryPressure || c.Type == v1.NodeDiskPressure || c.Type == v1.NodePIDPressure {
				same = same && slices.Contains(j.w.told.conditions, string(c.Type)) == (c.Status == v1.ConditionTrue)
			}
		}
	}
	switch {
	case same:
		j.differs = time.Time{}
	case j.differs.IsZero():
		j.differs = now
	case now.Sub(latest(j.differs, j.calmLocked(append(slices.Clone(peers), "apiserver")...))) > 20*time.Second:
		j.violationLocked("the Node says something else than what podsync knows since %s", now.Sub(j.differs))
		j.differs = now
	}
}

// breachesLocked judges that who has more than it may goes.
func (j *judge) breachesLocked() {
	now := time.Now()
	for _, p := range j.w.podsLocked() {
		if !j.evictableLocked(p) || p.slow > 0 {
			continue
		}
		calm := latest(j.calmLocked(peers...), j.progress)
		for _, since := range []time.Time{j.over[p].Add(walkPeriod), j.hidden[p].Add(3 * time.Minute)} {
			if since.Year() > 1 && now.Sub(latest(since, calm)) > 40*time.Second {
				j.violationLocked("%v has more than it may since %s, and does not go: %+v", p, now.Sub(since), j.w.machine.uses[p.name])
				delete(j.over, p)
				delete(j.hidden, p)
				break
			}
		}
	}
}

// forgottenLocked judges that podsync is asked again to keep what it could not.
func (j *judge) forgottenLocked() {
	now := time.Now()
	for _, p := range j.w.podsLocked() {
		s, a := p.stop, j.asks[p]
		if s == nil || s.kept || a == nil || !p.alive || a.run != j.w.run || now.After(s.since.Add(s.grace+patience)) {
			continue // Who has had its time is not waited for; if podsync forgets it, another is chosen.
		}
		if now.Sub(latest(s.since, j.calmLocked(peers...))) > 8*time.Second {
			j.violationLocked("that %v ends is kept by nobody, and podsync is not asked again", p)
			s.kept = true
		}
	}
}

// endsLocked judges how everything stands at the end, when nothing was wrong for long.
func (j *judge) endsLocked() {
	for _, p := range j.w.podsLocked() {
		if a := j.asks[p]; p.alive && p.stop == nil && a != nil && a.taken {
			j.violationLocked("%v was stopped, and runs", p)
		}
	}
	if t := j.w.told; t == nil || len(t.conditions) > 0 && !j.shortLocked() {
		j.violationLocked("at the end podsync knows %+v, and nothing is short", t)
	}
}

func (j *judge) shortLocked() bool {
	return slices.ContainsFunc(j.marks, func(k *mark) bool {
		return !k.since.IsZero() || k.quiet.IsZero() && !k.shown.IsZero() || time.Since(k.quiet) < j.w.scenario.transition+time.Minute
	})
}
