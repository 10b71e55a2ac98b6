package sim

import (
	"fmt"
	"slices"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
)

// judge checks the promises. It knows how the machine really stands, what stats has told
// of it and what podsync was asked for, and nothing of how nodestatus works. Its methods are
// called under the world's lock.
type judge struct {
	w     *world
	marks []*mark
	// asks is what was asked for with each pod first, since podsync does not end it, and calls
	// are how many of nodestatus' calls to end it are under way.
	asks  map[*pod]*asked
	calls map[*pod]int
	// looks is when stats told of each resource last.
	looks [goods]time.Time
	// seeded is of when the pressure is that podsync knew of when nodestatus began.
	seeded time.Time
	// cleared is when a pod that was stopped has given back what it had of each.
	cleared [goods]time.Time
	// garbage is since when there is something to reclaim, reclaims is when podsync began
	// to last, barren how often in a row it has found nothing.
	garbage, reclaims time.Time
	barren            int
	// undone is how often in a row podsync was asked by a run of nodestatus to reclaim, since a
	// pod last went for a disk, and did not, and undoneAgain when it was asked for the second.
	undone      int
	undoneAgain time.Time
	// late is when stats had no time for a pod's directories last, and lateFrom the first
	// time of those that are not forgiven.
	late, lateFrom time.Time
	// refused are pods that podsync would not end, and until when they may be left alone.
	refused map[*pod]time.Time
	// progress is when something was done or changed last that shortages wait for.
	progress time.Time
	// differs is since when the Node says something else than what podsync was told.
	differs time.Time
	// over is since when each pod has had more than it may, and hidden since when with files
	// that were removed.
	over, hidden map[*pod]time.Time

	// groupAt is when a pod of each group was first stopped in the shutdown that there is.
	groupAt map[int]time.Time
	// settled is since when the machine need not wait any more, gaped since when podsync
	// admits pods though it does not stay, or none though it does.
	settled, gaped time.Time

	violations []string
}

// asked is what nodestatus has asked for with a pod.
type asked struct {
	run     *run
	at      time.Time
	message string
	grace   time.Duration
	// marks are what was short by the message, mark is the first; none: the pod has had more
	// than it may.
	marks []shortOf
	mark  *mark
	// taken: podsync has said that it keeps it. calmed: since then stats has told that nothing
	// of the kind is short, and a pod that podsync has not taken need not go any more.
	taken, calmed bool
}

// shortOf is what may have been short, and what was left of it by the message.
type shortOf struct {
	*mark
	left uint64
}

// mark is a threshold of the configuration.
type mark struct {
	signal string
	r      good
	// need has to be left; once it was acted upon, enough.
	need, enough uint64
	soft         bool
	grace        time.Duration
	// since is since when less than need is left in truth; zero: it is not. begun is the same
	// whatever was left for a moment meanwhile, and over is when enough was last.
	since, begun, over time.Time
	// met is when stats told of that first since it told that enough is; shown when it did
	// last, and quiet when it told something else first since then.
	met, shown, quiet time.Time
}

func newJudge(w *world) *judge {
	return &judge{w: w, marks: w.scenario.marks(), asks: map[*pod]*asked{}, calls: map[*pod]int{}, refused: map[*pod]time.Time{}, over: map[*pod]time.Time{}, hidden: map[*pod]time.Time{}, groupAt: map[int]time.Time{}}
}

// violationLocked notes a broken promise.
func (j *judge) violationLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.w.tell("VIOLATION:", text)
	if len(j.violations) < 10 {
		j.violations = append(j.violations, time.Now().UTC().Format("15:04:05.000")+": "+text)
	}
}

func (j *judge) beganLocked(*run) {
	j.seeded, j.undone = time.Time{}, 0
	if t := j.w.told; t != nil && len(t.conditions) > 0 {
		j.seeded = t.at
	}
}

// condition is the Node's that speaks of a resource.
func condition(r good) string {
	switch r {
	case memory, podsMemory:
		return "MemoryPressure"
	case pids:
		return "PIDPressure"
	}
	return "DiskPressure"
}

func isDisk(r good) bool { return condition(r) == "DiskPressure" }

// changedLocked takes in how the machine stands now.
func (j *judge) changedLocked() {
	now, m := time.Now(), j.w.machine
	for _, k := range j.marks {
		switch short := m.left(k.r) < k.need; {
		case !short && k.since.IsZero():
		case !short:
			k.since, k.over = time.Time{}, now
		case k.since.IsZero():
			k.since = now
			if now.Sub(k.over) > 10*time.Second {
				k.begun = now
			}
		}
	}
	garbage := m.images > 0
	for _, p := range j.w.podsLocked() {
		u := m.uses[p.name]
		garbage = garbage || !p.alive && u.layer+u.logs > 0 || u.kept > 0
		j.breachLocked(p, u, now)
		if n := len(m.past); p.stop != nil && !p.alive && n > 1 {
			j.givesLocked(p, m.past[n-2].uses[p.name], u)
		}
	}
	switch {
	case !garbage:
		j.garbage = time.Time{}
	case j.garbage.IsZero():
		j.garbage = now
	}
}

// givesLocked notes what a pod that was stopped gives back, which is waited for as long as
// that may take.
func (j *judge) givesLocked(p *pod, before, u use) {
	now, layout := time.Now(), j.w.machine.layout
	for r := range goods {
		if before.of(r, layout) <= u.of(r, layout) {
			continue
		}
		j.progress = now
		if now.Before(p.stop.since.Add(p.stop.grace + patience)) {
			j.cleared[r] = now
		}
	}
}

func (j *judge) breachLocked(p *pod, u use, now time.Time) {
	for i, since := range []map[*pod]time.Time{j.over, j.hidden} {
		switch over := p.alive && !p.spared && p.over(u, j.w.machine.layout, i == 1) != ""; {
		case !over:
			delete(since, p)
		case since[p].IsZero():
			since[p] = now
		}
	}
}

// framedLocked takes in what stats tells a run of nodestatus.
func (j *judge) framedLocked(run *run, f *statsv1.WatchSignalsResponse) {
	if run.dead() {
		return
	}
	now := time.Now()
	for _, k := range j.marks {
		i := slices.IndexFunc(f.GetSignals(), func(s *statsv1.Signal) bool { return s.GetName() == k.signal })
		var left uint64
		credible := false
		if i >= 0 {
			s := f.GetSignals()[i]
			left, credible = s.GetAvailable(), s.GetAvailable() <= s.GetCapacity()
			j.looks[k.r] = now
		}
		if credible && left < k.enough {
			k.shown, k.quiet = now, time.Time{}
			if k.met.IsZero() && left < k.need {
				k.met = now
			}
			continue
		}
		k.met = time.Time{}
		if k.quiet.IsZero() {
			k.quiet = now
		}
	}
	for _, a := range j.asks {
		a.calmed = a.calmed || a.mark != nil && !slices.ContainsFunc(j.marks, func(k *mark) bool {
			return condition(k.r) == condition(a.mark.r) && !k.soft && !k.met.IsZero()
		})
	}
}

// lookedLocked takes in what stats says of the machine when it is asked.
func (j *judge) lookedLocked(n statsapi.NodeStats) {
	now := time.Now()
	j.looks[memory], j.looks[podsMemory] = now, now
	if n.Rlimit != nil {
		j.looks[pids] = now
	}
	if n.Fs != nil {
		j.looks[nodeBytes], j.looks[nodeInodes] = now, now
	}
	if n.Runtime != nil && n.Runtime.ImageFs != nil {
		j.looks[imageBytes], j.looks[imageInodes] = now, now
	}
}

// lateLocked notes that stats has had no time for a pod's directories.
func (j *judge) lateLocked() {
	now := time.Now()
	if now.Sub(j.late) > 10*time.Minute {
		j.lateFrom = now
	}
	j.late = now
}

// reclaimedLocked takes in what podsync has freed.
func (j *judge) reclaimedLocked(began time.Time, _ *podsyncv1.ReclaimRequest, out *podsyncv1.ReclaimResponse) {
	if out.GetImages()+out.GetContainers() > 0 {
		j.barren, j.progress = 0, time.Now()
	} else {
		j.barren++
	}
	j.reclaims, j.undone = began, 0
}

// undoneLocked takes in that podsync did not reclaim what it was asked to.
func (j *judge) undoneLocked(began time.Time) {
	if j.undone++; j.undone == 2 {
		j.undoneAgain = began
	}
}

// wrongLocked says whether something has been wrong at any time since then.
func (j *judge) wrongLocked(then time.Time, kinds ...string) bool {
	for kind, f := range j.w.faults {
		if (len(kinds) == 0 || slices.Contains(kinds, kind)) && f.until.After(then) && f.from.Before(time.Now()) {
			return true
		}
	}
	return false
}

// calmLocked is since when none of these is wrong; in the future while one is.
func (j *judge) calmLocked(kinds ...string) (since time.Time) {
	since = j.w.run.began
	for _, kind := range kinds {
		if until := j.w.faults[kind].until; until.After(since) {
			since = until
		}
	}
	return since
}
