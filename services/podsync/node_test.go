package podsync

import (
	"testing"
	"time"
)

func TestALoopThatHasNotGoneRoundForLongIsStuck(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name  string
		last  time.Time
		stuck bool
	}{
		{"never yet", time.Time{}, false},
		{"just now", now, false},
		{"at the limit", now.Add(-5 * time.Minute), false},
		{"beyond it", now.Add(-5*time.Minute - time.Second), true},
	} {
		if err := goesRound(c.last, now, 5*time.Minute); (err != nil) != c.stuck {
			t.Errorf("%s: %v, want stuck %v", c.name, err, c.stuck)
		}
	}
}
