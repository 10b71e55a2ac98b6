package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

const (
	atOnce = time.Second
	// least is what a runtime needs to end a pod at least.
	least = 2500 * time.Millisecond
	// patience is how long beyond its time a pod is waited for.
	patience = 30 * time.Second
	// inHand is how long before a call the figures may have been read that it is made by.
	inHand = 100 * time.Millisecond
	// emptying is how long after its end a pod's volumes are waited for.
	emptying = 10 * time.Second
)

// askedLocked judges a call to end a pod.
func (j *judge) askedLocked(run *run, p *pod, r *podsyncv1.StopPodRequest) {
	if p == nil || p.name != r.GetPod().GetName() {
		j.violationLocked("podsync was asked to end a pod that there is not: %v", r.GetPod())
		return
	}
	now, grace := time.Now(), r.GetGrace().AsDuration()
	j.w.tell("ASK", p.name, r.GetMessage(), grace)
	if r.GetShutdown() {
		j.goesDownLocked(run, p, r)
		return
	}
	if r.GetReason() != "Evicted" {
		j.violationLocked("%v was stopped for the reason %q", p, r.GetReason())
	}
	if p.spared {
		j.violationLocked("%v was stopped, which is static or critical", p)
		j.refused[p] = now.Add(time.Minute)
	}
	before := j.asks[p]
	if before != nil && p.stop == nil && before.taken {
		before = nil // It is another pod's life: podsync has forgotten.
	}
	if before != nil && before.run == run && j.calls[p] > 0 && before.message != r.GetMessage() {
		j.violationLocked("%v was stopped a second time, while podsync was being asked to end it for %q: %s", p, before.message, r.GetMessage())
		return
	}
	if before != nil && before.message == r.GetMessage() {
		j.repeatedLocked(run, p, before, grace)
		before.run, before.grace = run, min(before.grace, grace)
		return
	}
	if p.stop != nil && p.stop.reason == "Evicted" && p.stop.message != r.GetMessage() {
		j.violationLocked("%v was stopped a second time, while podsync was ending it for %q: %s", p, p.stop.message, r.GetMessage())
		return
	}
	a := &asked{run: run, at: now, message: r.GetMessage(), grace: grace}
	j.asks[p], j.progress = a, now
	if p.spared {
		return
	}
	if strings.HasPrefix(a.message, "The node was low on resource: ") {
		j.shortageLocked(p, a)
	} else {
		j.limitLocked(p, a)
	}
}

// repeatedLocked judges a call that was made before: podsync may not have taken it, or the
// pod has less time now.
func (j *judge) repeatedLocked(run *run, p *pod, a *asked, grace time.Duration) {
	switch {
	case (a.taken || j.calls[p] > 0) && a.run == run && grace >= a.grace:
		j.violationLocked("%v was stopped twice", p)
	case a.taken || p.stop != nil || a.mark == nil:
		return // It ends, and podsync is to keep that.
	case j.leastLocked(a.mark.r, 16*time.Second) >= a.mark.enough:
		j.violationLocked("%v was stopped once more for what has not been short of late: %s", p, a.message)
	}
}

func (j *judge) leastLocked(r good, of time.Duration) uint64 {
	least, _ := j.w.machine.leftSince(r, time.Now().Add(-of))
	return least
}

// windowLocked is how old what a pod was chosen by may be.
func (j *judge) windowLocked(r good) (then time.Time, tight bool) {
	now := time.Now()
	window := 2 * time.Second
	if isDisk(r) {
		window = 9 * time.Second
	}
	if j.wrongLocked(now.Add(-window-15*time.Second), "stats", "podsync", "nodestatus", "figures", "hung", "full", "files") {
		return now.Add(-window - 16*time.Second), false
	}
	return now.Add(-window), true
}

// shortageLocked judges that a pod goes for what is short.
func (j *judge) shortageLocked(p *pod, a *asked) {
	name, need, available, ok := parsed(a.message)
	if !ok {
		j.violationLocked("%v was stopped with the message %q", p, a.message)
		return
	}
	now, worst := time.Now(), ""
	for _, k := range j.marks {
		if goodName(k.signal) != name || !near(need, k.need) {
			continue
		}
		then, tight := j.windowLocked(k.r)
		if c := j.cleared[k.r].Add(-inHand); tight && c.After(then) {
			then = c
		}
		lowest, most := j.w.machine.leftSince(k.r, then)
		switch {
		case lowest >= k.enough:
			worst = fmt.Sprintf("%v was stopped though nothing of it was short: %s; in truth at least %d were left and %d are enough", p, a.message, lowest, k.enough)
			continue
		case !between(available, lowest, most):
			worst = fmt.Sprintf("%v was stopped by figures that were not so: %s; in truth from %d to %d were left", p, a.message, lowest, most)
			continue
		}
		a.marks = append(a.marks, shortOf{k, available})
		if a.mark != nil {
			continue
		}
		a.mark = k
		if now.Sub(j.looks[k.r]) > 26*time.Second {
			j.violationLocked("%v was stopped by figures of %s, %s old", p, k.signal, now.Sub(j.looks[k.r]))
		}
		j.graceLocked(p, a, k)
		j.turnLocked(p, a, k)
		j.reclaimableLocked(p, k)
	}
	if a.mark != nil {
		j.certainLocked(a)
		j.besideLocked(p, a)
		return
	}
	if worst == "" {
		worst = fmt.Sprintf("%v was stopped for a threshold that there is not: %s", p, a.message)
	}
	j.violationLocked("%s", worst)
}

// certainLocked leaves of what may have been short by a message that of which exactly so
// much was left, if there is any.
func (j *judge) certainLocked(a *asked) {
	certain := slices.DeleteFunc(slices.Clone(a.marks), func(k shortOf) bool {
		then, _ := j.windowLocked(k.r)
		return !slices.ContainsFunc(j.w.machine.since(then), func(past moment) bool { return past.left[k.r] == k.left })
	})
	if len(certain) > 0 {
		a.marks, a.mark = certain, certain[0].mark
	}
}

// parsed takes a message of a shortage apart.
func parsed(message string) (name string, need, available uint64, ok bool) {
	rest := strings.TrimPrefix(message, "The node was low on resource: ")
	name, rest, _ = strings.Cut(rest, ". Threshold quantity: ")
	needed, rest, _ := strings.Cut(rest, ", available: ")
	left, _, _ := strings.Cut(rest, ". ")
	a, err := resource.ParseQuantity(needed)
	b, other := resource.ParseQuantity(left)
	return name, uint64(a.Value()), uint64(b.Value()), err == nil && other == nil
}

// goodName is what users are told that a signal is of.
func goodName(signal string) string {
	switch {
	case strings.HasSuffix(signal, "emory.available"):
		return "memory"
	case signal == "pid.available":
		return "pids"
	case strings.HasSuffix(signal, ".inodesFree"):
		return "inodes"
	}
	return "ephemeral-storage"
}

// near says whether two numbers are the same, but for how percentages are rounded.
func near(a, b uint64) bool { return math.Abs(float64(a)-float64(b)) <= 1+float64(b)/1e6 }

func between(n, low, high uint64) bool { return low <= n && n <= high }

// graceLocked judges how long a pod was given, and whether it was time.
func (j *judge) graceLocked(p *pod, a *asked, k *mark) {
	want := atOnce
	if k.soft {
		want = min(p.grace, j.w.scenario.longestGrace)
		if k.met.IsZero() || time.Since(k.met) < k.grace-100*time.Millisecond {
			j.violationLocked("%v was stopped for the soft threshold of %s, whose grace period of %s was not over: it was met for %s", p, k.signal, k.grace, time.Since(k.met))
		}
	}
	if a.grace != want {
		j.violationLocked("%v was given %s, not %s: %s", p, a.grace, want, a.message)
	}
}

// turnLocked judges whether it was the pod's turn: that no other was surely before it, by
// what both have had of late.
func (j *judge) turnLocked(p *pod, a *asked, k *mark) {
	then, tight := j.windowLocked(k.r)
	if isDisk(k.r) && tight {
		then = latest(then, k.begun) // What was measured before says nothing of who has filled it.
	}
	if isDisk(k.r) && (j.wrongLocked(time.Now().Add(-45*time.Second), "hung", "stats", "files") || p.slow > 0) {
		return
	}
	m := j.w.machine
	low, high := m.usedSince(p.name, k.r, then)
	asks := p.asks[kindOf(k.r)]
	for _, o := range j.w.podsLocked() {
		if o == p || !j.evictableLocked(o) || !o.ranked(k.r, 5*time.Second) || isDisk(k.r) && !j.measurableLocked(o) {
			continue
		}
		lowO, _ := m.usedSince(o.name, k.r, then)
		_, highO := m.usedSince(o.name, k.r, then)
		asksO := o.asks[kindOf(k.r)]
		more := signed(lowO)-signed(asksO) > signed(high)-signed(asks)
		before := o.priority < p.priority || o.priority == p.priority && more
		if k.r == pids {
			if before {
				j.violationLocked("%v was stopped for processes before %v: %s", p, o, a.message)
			}
			continue
		}
		switch {
		case lowO > asksO && high <= asks, // It alone exceeds what it asked for.
			lowO > asksO && low > asks && before,
			lowO > asksO && before,
			highO <= asksO && high <= asks && before:
			j.violationLocked("%v (priority %d, used %d to %d, asked for %d) was stopped before %v (priority %d, used at least %d, asked for %d): %s", p, p.priority, low, high, asks, o, o.priority, lowO, asksO, a.message)
		}
	}
}

func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// evictableLocked says whether a pod may be chosen as far as anybody knows: of what a run
// before this one has asked for, nobody knows but podsync.
func (j *judge) evictableLocked(p *pod) bool {
	a := j.asks[p]
	return p.alive && !p.spared && p.stop == nil && (a == nil || a.run != j.w.run) && time.Now().After(j.refused[p])
}

// untakenLocked says whether a pod was chosen, and podsync has not heard of it or has
// forgotten it, and is not being asked.
func (j *judge) untakenLocked(p *pod) bool {
	return p.alive && !p.spared && p.stop == nil && j.asks[p] != nil && j.calls[p] == 0 && time.Now().After(j.refused[p])
}

// measurableLocked says whether what a pod has on disks can be known in the time that is
// waited for it.
func (j *judge) measurableLocked(p *pod) bool {
	if p.slow == 0 {
		return true
	}
	others := 0
	for _, o := range j.w.podsLocked() {
		if o.slow > 0 && o != p && o.alive && !o.spared {
			others++
		}
	}
	return p.slow <= 8*time.Second && others == 0 && j.late.Sub(j.lateFrom) < 14*time.Second
}

// besideLocked judges that no other pod is ending that was to be waited for. Where a message
// may be of several thresholds, it is enough that one of them explains it.
func (j *judge) besideLocked(p *pod, a *asked) {
	now := time.Now()
	for _, q := range j.w.podsLocked() {
		of := j.asks[q]
		s := j.endingLocked(q, a.run)
		if q == p || s == nil || of == nil || of.mark == nil || now.After(s.since.Add(s.grace+patience)) || now.After(of.at.Add(s.grace+patience)) {
			continue
		}
		waits := true
		for _, k := range a.marks {
			for _, was := range of.marks {
				waits = waits && j.awaitedLocked(q, s, of, was, k.mark)
			}
		}
		if waits {
			j.violationLocked("%v was stopped for %s though %v was stopped for %s %s before and is not gone", p, a.mark.signal, q, of.mark.signal, now.Sub(of.at))
		}
	}
}

// endingLocked is how a pod ends as far as a run of nodestatus knows; nil: it does not. One
// that podsync was asked for may be ending, whatever it has answered.
func (j *judge) endingLocked(q *pod, run *run) *stop {
	if of := j.asks[q]; q.stop == nil && of != nil && q.alive && of.run == run && !of.taken && !of.calmed {
		return &stop{since: of.at, grace: of.grace}
	}
	return q.stop
}

// awaitedLocked says whether a pod that was stopped for what was short is to be waited for
// before another goes for a threshold.
func (j *judge) awaitedLocked(q *pod, s *stop, of *asked, was shortOf, k *mark) bool {
	now := time.Now()
	leaves := !q.alive && now.Sub(q.ended) < emptying && j.w.machine.uses[q.name].volumeThere()
	same, given, slow := condition(was.r) == condition(k.r), now.After(of.at.Add(max(s.grace, least))), s.grace > atOnce
	lowest, _ := j.w.machine.leftSince(k.r, of.at.Add(max(s.grace, least)))
	less := was.r == k.r && lowest <= was.left // Two resources do not compare.
	switch {
	case !q.alive && !(leaves && isDisk(k.r)):
		return false
	case !k.soft && !isDisk(k.r) && given && (!same || less):
		return false // Memory and processes do not wait for who does not end.
	case !k.soft && !same && (condition(k.r) == "MemoryPressure" || slow):
		return false // What is short of another kind does not wait.
	case !k.soft && !q.alive && !isDisk(was.r) && !j.wasShortLocked(q):
		return false
	}
	return true
}

// wasShortLocked says whether a disk was when a pod ended.
func (j *judge) wasShortLocked(q *pod) bool {
	for _, k := range j.marks {
		if isDisk(k.r) && !k.since.IsZero() && !k.since.After(q.ended) {
			return true
		}
	}
	return false
}

// reclaimableLocked judges that nobody goes for what podsync could free.
func (j *judge) reclaimableLocked(p *pod, k *mark) {
	m, now, undone := j.w.machine, time.Now(), j.undone
	if !isDisk(k.r) {
		return
	}
	j.undone = 0
	if k.r != m.imagesOn(false) || m.images == 0 || j.garbage.IsZero() || m.left(k.r)+m.images < k.enough || now.Sub(j.garbage) < 15*time.Second {
		return
	}
	// A podsync that never does it does not spare the pods for ever.
	never := undone > 3 || undone > 1 && now.Sub(j.undoneAgain) >= time.Minute
	if j.reclaims.Before(j.garbage) && j.barren < 3 && !never {
		j.violationLocked("%v was stopped for %s though images that nobody uses would be enough", p, k.signal)
	}
}

// limitLocked judges that a pod goes for a limit of its own.
func (j *judge) limitLocked(p *pod, a *asked) {
	if a.grace != atOnce {
		j.violationLocked("%v was given %s for a limit of its own", p, a.grace)
	}
	window := walkPeriod + 25*time.Second + p.slow*2
	if f := j.w.faults["hung"]; !f.from.IsZero() {
		window += f.until.Sub(f.from)
	}
	if f := j.w.faults["stats"]; !f.from.IsZero() {
		window += f.until.Sub(f.from)
	}
	for _, past := range j.w.machine.since(time.Now().Add(-window)) {
		if p.over(past.uses[p.name], j.w.machine.layout, true) != "" {
			return
		}
	}
	j.violationLocked("%v was stopped for a limit that it has kept: %s", p, a.message)
}

// takenLocked takes in that podsync has said that it keeps a stop, and looks a moment later
// whether nodestatus tells of its decision as it was.
func (j *judge) takenLocked(run *run, p *pod, message string) {
	a := j.asks[p]
	if a == nil || a.message != message || run.dead() {
		return
	}
	first := !a.taken
	a.taken = true
	then := a.at.Add(-9 * time.Second)
	if first && a.run == run {
		time.AfterFunc(2*time.Second, func() { j.explained(run, p, a, then) })
	}
}

// explained judges what nodestatus says of a decision.
func (j *judge) explained(run *run, p *pod, a *asked, then time.Time) {
	if run.dead() || run.server == nil {
		return
	}
	r, err := run.server.ListEvictionDecisions(context.Background(), &nodestatusv1.ListEvictionDecisionsRequest{})
	j.w.must(err)
	if s := j.w.sabotage; s != nil && s.decisions != nil {
		s.decisions(r)
	}
	j.w.set(func() {
		for _, d := range r.GetDecisions() {
			if d.GetChosenUid() != p.uid() || d.GetOutcome() != "evicted" {
				continue
			}
			for _, c := range d.GetCandidates() {
				if a.mark != nil && c.GetUid() == p.uid() {
					j.figuresLocked(p, a, uint64(max(c.GetUsage(), 0)), then)
				}
			}
			return
		}
		if !j.wrongLocked(a.at, "podsync", "nodestatus") {
			j.violationLocked("nodestatus does not tell that it had %v ended: %v", p, r.GetDecisions())
		}
	})
}

func (j *judge) figuresLocked(p *pod, a *asked, usage uint64, then time.Time) {
	if isDisk(a.mark.r) && (p.slow > 0 || j.wrongLocked(then.Add(-time.Minute), "hung", "stats", "podsync", "files")) || j.wrongLocked(then, "stats", "podsync") {
		return
	}
	low, high := ^uint64(0), uint64(0)
	for _, past := range j.w.machine.since(then) {
		if past.at.After(a.at) {
			break
		}
		n := past.uses[p.name].of(a.mark.r, j.w.machine.layout)
		low, high = min(low, n), max(high, n)
	}
	if !between(usage, low, high) {
		j.violationLocked("nodestatus tells that %v used %d of %s, and it was from %d to %d", p, usage, a.mark.signal, low, high)
	}
}
