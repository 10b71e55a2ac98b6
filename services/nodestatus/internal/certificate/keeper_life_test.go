package certificate

import (
	"testing"
	"time"
)

// A signer dates certificates back, by five minutes say, so that of a short life most is
// over when it begins.
func TestCertificatesOfASecondsLifeAreAskedForNoOftenerThanTheyLast(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.signer.life = 30 * time.Second
		w.start()
		for range 60 {
			time.Sleep(5 * time.Second)
			if leaf := w.now(); leaf == nil || time.Now().After(leaf.NotAfter) {
				t.Fatalf("there is no certificate that is good; waits for %q", w.waits())
			}
		}
		if w.count() < 10 || w.count() > 31 {
			t.Errorf("%d certificates in five minutes", w.count())
		}
	})
}
