package sampler

import (
	"testing"
	"time"
)

func TestARateIsTakenOverAWindowAndKeptUntilTheNext(t *testing.T) {
	var r rates
	start := time.Unix(0, 0)
	steps := []struct {
		after time.Duration
		total uint64
		want  uint64 // 0 is none.
	}{
		{0, 1000, 0}, {500 * time.Millisecond, 2000, 0}, {2 * time.Second, 2001000, 1_000_000}, {10 * time.Second, 10_001_000, 1_000_000},
		{12 * time.Second, 90_000_000, 1_000_000}, {20 * time.Second, 30_001_000, 2_000_000}, {30 * time.Second, 5, 0},
	}
	for _, step := range steps {
		got := r.observe("/x", start.Add(step.after), step.total)
		if step.want == 0 && got != nil || step.want != 0 && (got == nil || *got != step.want) {
			t.Errorf("after %s: rate %v; want %d", step.after, got, step.want)
		}
	}
	r.forget(start.Add(time.Hour))
	if len(r.byName) != 0 {
		t.Error("a cgroup that was not seen for an hour is still kept")
	}
}
