package observe

import (
	"testing"
	"time"
)

func TestALoopThatHasNotGoneRoundForLongIsStuck(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name  string
		began time.Time
		last  time.Time
		stuck bool
	}{
		{"it does not run yet", time.Time{}, time.Time{}, false},
		{"it has just begun", now.Add(-time.Second), time.Time{}, false},
		{"it never came round", now.Add(-5*time.Minute - time.Second), time.Time{}, true},
		{"just now", now.Add(-time.Hour), now, false},
		{"at the limit", now.Add(-time.Hour), now.Add(-5 * time.Minute), false},
		{"beyond it", now.Add(-time.Hour), now.Add(-5*time.Minute - time.Second), true},
	} {
		r := Runtime{Began: c.began, LastRelist: c.last}
		if err := r.Stuck(now, 5*time.Minute); (err != nil) != c.stuck {
			t.Errorf("%s: %v, want stuck %v", c.name, err, c.stuck)
		}
	}
}
