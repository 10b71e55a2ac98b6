package liveconf

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/polylet/polylet/internal/configslice"
)

// trial judges whether a change is good. Its rules are about times that it is given. A
// nil one takes what it is told and judges nothing.
type trial struct {
	deadline  time.Duration
	began     time.Time
	changes   []configslice.Change
	owners    []string
	restarted []string
	before    map[string]Report // of each before the change; none: not known
	silent    []string          // those that gave no answer before
	ends      map[string]int
	last      map[string]error // of each that ended
	failed    error
	goodSince time.Time
	badSince  time.Time
	bad       string // what was wrong last
	seen      time.Time
	waits     string // why nothing can be said; empty when it can
	// processors is what services had had of them since something was wrong, starvedFor for
	// how long nothing was said since they had too little.
	processors map[string]measured
	starvedFor time.Duration
}

// newTrial begins one. before is how each service did: what was wrong then counts for
// nothing. Of a service that is missing in it nothing is known, and its dependencies count
// for nothing.
func newTrial(deadline time.Duration, changes []configslice.Change, owners []string, before map[string]Report) *trial {
	return &trial{
		deadline: deadline, began: time.Now(), seen: time.Now(), changes: changes, owners: owners, before: before,
		ends: map[string]int{}, last: map[string]error{}, processors: map[string]measured{},
	}
}

// forget is for ends of processes that ran something else.
func (t *trial) forget() { clear(t.ends); clear(t.last) }

// end notes that a service ended by itself. Those that do not use what changed prove
// nothing about it.
func (t *trial) end(service string, err error) {
	if t == nil || !slices.Contains(t.owners, service) {
		return
	}
	t.ends[service]++
	t.last[service] = err
	t.goodSince = time.Time{}
}

// credential is the dependency of who asks the apiserver that has nothing to do so with.
const credential = "credential"

// ofApiserver are dependencies that cannot be used when the apiserver is away.
func ofApiserver(name string) bool {
	return strings.HasSuffix(name, ofRequest) || slices.Contains([]string{"apiserver", credential, "lease", "CSI drivers of the node", "mirror pods", "node address"}, name)
}

// ofRequest is the end of the names of dependencies that are requests for certificates, and
// waitsFor how it begins that one was made and not answered.
const ofRequest, waitsFor = " CSR", "waits for "

// ofPeople says whether a dependency says nothing of a change: a certificate that was asked
// for comes when somebody in the cluster approves it, and the one before goes on meanwhile.
// That it cannot be asked for, or written, may be the change's doing.
func ofPeople(name, why string) bool {
	return strings.HasSuffix(name, ofRequest) && strings.HasPrefix(why, waitsFor)
}

// wrong says what is wrong with a service; empty when it runs the change well. outside: it
// may be nothing but the apiserver, that is away.
func (t *trial) wrong(service, checksum string, report Report, err error) (what string, outside bool) {
	if what = t.wrongInside(service, checksum, report, err); what != "" {
		return what, false
	}
	before, known := t.before[service]
	for _, inside := range []bool{true, false} { // the one that counts in any case goes first
		for _, name := range slices.Sorted(maps.Keys(report.Lacks)) {
			if _, lacked := before.Lacks[name]; known && !lacked && !ofPeople(name, report.Lacks[name]) && ofApiserver(name) != inside {
				return fmt.Sprintf("%s cannot use %s, which it could before: %s", service, name, report.Lacks[name]), !inside
			}
		}
	}
	return "", false
}

// wrongInside is what is wrong with the service itself.
func (t *trial) wrongInside(service, checksum string, report Report, err error) string {
	switch {
	case err != nil && t.last[service] == nil && slices.Contains(t.silent, service):
		return "" // nobody runs it here, say
	case err != nil && t.last[service] != nil:
		return fmt.Sprintf("%s ends again and again: %v", service, t.last[service])
	case err != nil:
		return fmt.Sprintf("%s does not answer: %v", service, err)
	case report.Checksum != checksum:
		return fmt.Sprintf("%s runs with another configuration still", service)
	}
	for _, name := range slices.Sorted(maps.Keys(report.Unhealthy)) {
		if _, failed := t.before[service].Unhealthy[name]; !failed {
			return fmt.Sprintf("%s is not healthy: %s: %s", service, name, report.Unhealthy[name])
		}
	}
	return ""
}

// wait notes that nothing can be said now: the time does not count.
func (t *trial) wait(now time.Time, why string) {
	t.began = t.began.Add(now.Sub(t.seen))
	t.seen, t.waits, t.goodSince, t.badSince = now, why, time.Time{}, time.Time{}
}

// look notes how all owners were found; bad is empty when they run it well.
func (t *trial) look(now time.Time, bad string) {
	t.seen, t.waits = now, ""
	if bad == "" {
		t.badSince = time.Time{}
		clear(t.processors)
		if t.goodSince.IsZero() {
			t.goodSince = now
		}
		return
	}
	t.bad, t.goodSince = bad, time.Time{}
	if t.badSince.IsZero() {
		t.badSince = now
	}
}

// lastWrong is what was wrong last, as far as that is known.
func (t *trial) lastWrong() string {
	if t.bad != "" {
		return t.bad
	}
	for _, service := range t.owners {
		if err := t.last[service]; err != nil {
			return fmt.Sprintf("%s ended: %v", service, err)
		}
	}
	return "not all services could be asked"
}

// longest is how many deadlines a trial may go up and down.
const longest = 5

// verdict is good when all owners have run the change well for the deadline, and an
// error when one has ended too often, or something was wrong for the deadline.
func (t *trial) verdict(now time.Time) (good bool, bad error) {
	if t == nil {
		return false, nil
	}
	if t.failed != nil {
		return false, t.failed
	}
	for _, service := range t.owners {
		if n := t.ends[service]; n >= mostEnds {
			return false, fmt.Errorf("%s ended %d times with it, last: %w", service, n, t.last[service])
		}
	}
	switch {
	case !t.goodSince.IsZero() && now.Sub(t.goodSince) >= t.deadline:
		return true, nil
	case !t.badSince.IsZero() && now.Sub(t.badSince) >= t.deadline:
		return false, fmt.Errorf("for %v: %s", t.deadline, t.bad)
	case t.goodSince.IsZero() && now.Sub(t.began) >= longest*t.deadline: // else it is about to be good
		return false, fmt.Errorf("never well for %v in %v, last: %s", t.deadline, longest*t.deadline, t.lastWrong())
	}
	return false, nil
}
