package shutdown

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// systemCritical is the priority of the class system-cluster-critical, which the pods
// of the second of two periods have at least.
const systemCritical = 2_000_000_000

// Group is which pods end together, and for how long others wait for them.
type Group struct {
	// Priority is the lowest of the group's pods; those of the first have any lower one,
	// too.
	Priority int32
	// Period is how long they have at most.
	Period time.Duration
}

// Groups are those of a configuration, lowest priority first: byPriority, else the two
// of shutdownGracePeriod and shutdownGracePeriodCriticalPods. None: a shutdown is not
// delayed.
// Source: KEP-2000, KEP-2712.
func Groups(byPriority []Group, total, critical time.Duration) []Group {
	if len(byPriority) == 0 && total > 0 && critical >= 0 && critical <= total {
		byPriority = []Group{{0, (total - critical).Truncate(time.Second)}, {systemCritical, critical.Truncate(time.Second)}}
	}
	out := slices.Clone(byPriority)
	slices.SortStableFunc(out, func(a, b Group) int { return cmp.Compare(a.Priority, b.Priority) })
	return out
}

// Total is how long all groups have together.
func Total(groups []Group) (total time.Duration) {
	for _, g := range groups {
		total += g.Period
	}
	return total
}

// shortened are groups that together have no longer than the machine waits; zero: that is
// not known. Each loses the same part, for the first would leave the last ones nothing.
func shortened(groups []Group, delay time.Duration) []Group {
	total := Total(groups)
	if delay <= 0 || delay >= total {
		return groups
	}
	out := slices.Clone(groups)
	for i := range out {
		out[i].Period = time.Duration(math.Round(float64(out[i].Period) * (float64(delay) / float64(total))))
	}
	return out
}

// groupOf is the group of a priority: the last of those whose own is not above it.
func groupOf(groups []Group, priority int32) int {
	i, found := slices.BinarySearchFunc(groups, priority, func(g Group, p int32) int { return cmp.Compare(g.Priority, p) })
	if found {
		return i
	}
	return max(i-1, 0)
}
