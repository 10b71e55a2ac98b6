package certificate

import (
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

const (
	day   = 24 * time.Hour
	month = 30 * day
	years = 10 * 365 * day
)

// Ten years, a month at a time, with an apiserver that is away for days each time, also
// just when the certificate is due, and a process that is killed at any moment. A missing
// renewal would be seen within hours, when the apiserver is away too. (Longer is slower:
// it is asked every half minute.)
func TestInTenYearsNoRenewalIsMissedThoughTheApiserverIsAwayForDays(t *testing.T) {
	for name, tc := range map[string]struct {
		life, away time.Duration
		serving    bool
	}{
		"a client's of a year":       {life: 365 * day, away: 2 * day},
		"a client's of three months": {life: 90 * day, away: 2 * day},
		"a server's of a year":       {life: 365 * day, away: day, serving: true},
		"a client's of a month":      {life: month, away: 6 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.signer.life = tc.life
				if tc.serving {
					w.store.Prefix = nodecert.Serving
					w.want, _ = ServingRequest("n1", []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.1"}}, false)
				}
				w.start()
				y := &decade{world: w, random: rand.New(rand.NewPCG(uint64(tc.life), 1)), away: tc.away}
				y.pass(time.Minute)
				for end := time.Now().Add(years); time.Now().Before(end); {
					y.month()
				}
				y.judge(tc.life)
			})
		})
	}
}

// decade is ten years of a keeper's life.
type decade struct {
	*world
	random *rand.Rand
	// away is how long the apiserver is away at most, less than a certificate is good from
	// the last moment on at which it may be due.
	away time.Duration
	// met says that it was away when the certificate was due.
	met int
}

// pass lets time pass and looks whether the certificate is good all the while.
func (d *decade) pass(span time.Duration) {
	d.Helper()
	for end := time.Now().Add(span); time.Now().Before(end); {
		time.Sleep(min(12*time.Hour, time.Until(end)))
		if leaf := d.now(); leaf == nil || time.Now().After(leaf.NotAfter) {
			d.Fatalf("%s: the certificate %v has ended, waits for %q", time.Now().Format(time.DateOnly), leaf, d.waits())
		}
	}
}

// month is a month in which the apiserver is away once, and the process is killed now and
// then.
func (d *decade) month() {
	d.Helper()
	begin, away := time.Now(), time.Duration(1+d.random.Int64N(int64(d.away)))
	due := time.Until(renewAt(d.now()))
	if due > time.Hour && due < month && d.met < 2 {
		d.pass(due - time.Hour)
		away, d.met = d.away, d.met+1
	} else {
		d.pass(time.Duration(d.random.Int64N(int64(month - away))))
	}
	d.leave()
	d.pass(away / 2)
	if d.random.IntN(4) == 0 {
		d.stop()
		d.start()
	}
	d.pass(away - away/2)
	d.set(func() { d.fault = nil })
	d.api.Heal()
	d.pass(max(0, month-time.Since(begin)))
}

// leave takes the apiserver away, in one of the ways in which it may be.
func (d *decade) leave() {
	switch d.random.IntN(3) {
	case 0:
		d.api.Partition(fakeapiserver.Refuse)
	case 1:
		d.set(func() {
			d.fault = func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Status: 503} }
		})
	case 2:
		d.set(func() {
			d.fault = func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Drop: true} }
		})
	}
}

// judge says whether as many certificates were asked for as were due, and each when it was.
func (d *decade) judge(life time.Duration) {
	d.Helper()
	most, least := int(years/time.Duration(float64(life)*earliest))+2, int(years/life)
	if d.count() < least || d.count() > most {
		d.Errorf("%d certificates in ten years; want %d to %d", d.count(), least, most)
	}
	if len(d.lived) != d.count()-1 {
		d.Errorf("%d ages of %d certificates", len(d.lived), d.count())
	}
	if d.met < 2 {
		d.Errorf("the apiserver was away %d times when the certificate was due", d.met)
	}
	late := (d.away + time.Hour).Seconds() / life.Seconds()
	for _, age := range d.lived {
		if part := age / (life + 5*time.Minute).Seconds(); part < earliest-0.001 || part > latest+0.001+late {
			d.Errorf("one was replaced after %.3f of its life", part)
		}
	}
}
