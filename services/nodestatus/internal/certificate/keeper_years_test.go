package certificate

import (
	"testing"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// Ten years, a month at a time, with an apiserver that is away for days each time.
func TestInTenYearsNoRenewalIsMissedThoughTheApiserverIsAwayForDays(t *testing.T) {
	for name, life := range map[string]time.Duration{"a year each": 365 * 24 * time.Hour, "three months each": 90 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.signer.life = life
				w.start()
				if w.now() == nil {
					t.Fatal("no certificate")
				}
				end := time.Now().Add(10 * 365 * 24 * time.Hour)
				for month := 0; time.Now().Before(end); month++ {
					// Two days of each month it is away, or answers nothing but 503.
					w.api.Partition(fakeapiserver.Refuse)
					if month%3 == 1 {
						w.api.Heal()
						w.set(func() {
							w.fault = func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Status: 503} }
						})
					}
					time.Sleep(48 * time.Hour)
					w.set(func() { w.fault = nil })
					w.api.Heal()
					if month%5 == 4 { // it is killed now and then
						w.stop()
						w.start()
					}
					for range 28 {
						time.Sleep(24 * time.Hour)
						if leaf := w.now(); leaf == nil || time.Now().After(leaf.NotAfter) {
							t.Fatalf("month %d: the certificate %v has ended, waits for %q", month, leaf, w.waits())
						}
					}
				}
				most := int(10*365*24*time.Hour/time.Duration(float64(life)*earliest)) + 2
				least := int(10 * 365 * 24 * time.Hour / life)
				if w.count() < least || w.count() > most {
					t.Errorf("%d certificates in ten years; want %d to %d", w.count(), least, most)
				}
				if len(w.lived) != w.count()-1 {
					t.Errorf("%d ages of %d certificates", len(w.lived), w.count())
				}
				for _, age := range w.lived {
					if part := age / (life + 5*time.Minute).Seconds(); part < earliest-0.001 || part > latest+0.001+(48*time.Hour+time.Minute).Seconds()/life.Seconds() {
						t.Errorf("one was replaced after %.3f of its life", part)
					}
				}
			})
		})
	}
}
