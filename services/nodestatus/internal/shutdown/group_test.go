package shutdown

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestTheGroupsAreThoseOfTheConfigurationLowestPriorityFirst(t *testing.T) {
	for name, c := range map[string]struct {
		byPriority      []Group
		total, critical time.Duration
		want            []Group
	}{
		"nothing is configured":  {},
		"two periods":            {total: 30 * time.Second, critical: 10 * time.Second, want: []Group{{0, 20 * time.Second}, {systemCritical, 10 * time.Second}}},
		"fractions of a second":  {total: 30500 * time.Millisecond, critical: 10200 * time.Millisecond, want: []Group{{0, 20 * time.Second}, {systemCritical, 10 * time.Second}}},
		"critical pods get none": {total: 30 * time.Second, want: []Group{{0, 30 * time.Second}, {systemCritical, 0}}},
		"all for critical pods":  {total: 5 * time.Second, critical: 5 * time.Second, want: []Group{{0, 0}, {systemCritical, 5 * time.Second}}},
		"more than there is":     {total: 5 * time.Second, critical: 6 * time.Second},
		"less than nothing":      {total: 5 * time.Second, critical: -time.Second},
		"by priority":            {byPriority: []Group{{1000, 5 * time.Second}, {0, 60 * time.Second}}, want: []Group{{0, 60 * time.Second}, {1000, 5 * time.Second}}},
	} {
		got := Groups(c.byPriority, c.total, c.critical)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if total := Total(got); len(c.byPriority) == 0 && total > c.total {
			t.Errorf("%s: %s in all, more than %s", name, total, c.total)
		}
	}
}

// Source: the kubelet's documentation of pod priority based shutdown: a priority between
// two entries is the lower one's, and those beyond the ends are the ends'.
func TestAPodIsInTheLastGroupWhosePriorityItHas(t *testing.T) {
	groups := []Group{{Priority: 0}, {Priority: 1000}, {Priority: systemCritical}}
	for priority, want := range map[int32]int{math.MinInt32: 0, -1: 0, 0: 0, 999: 0, 1000: 1, 1001: 1, systemCritical - 1: 1, systemCritical: 2, math.MaxInt32: 2} {
		if got := groupOf(groups, priority); got != want {
			t.Errorf("priority %d is in group %d, want %d", priority, got, want)
		}
	}
	if got := groupOf([]Group{{Priority: 1000}}, 5); got != 0 {
		t.Errorf("a priority below all groups is in group %d", got)
	}
}
