package plan

import (
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

const (
	firstBackoff      = 10 * time.Second
	longestBackoff    = 300 * time.Second
	backoffForgetting = 10 * time.Minute
)

// restartAt says when the container may start again after c ended, and the
// back-off that the new container is to carry.
func restartAt(c *podstate.Container, node Node) (time.Time, time.Duration) {
	first, longest := firstBackoff, longestBackoff
	if node.FirstContainerRestartPeriod > 0 {
		first = node.FirstContainerRestartPeriod
	}
	if node.MaxContainerRestartPeriod > 0 {
		longest = node.MaxContainerRestartPeriod
	}
	first = min(first, longest)
	wait := min(c.Backoff, longest)
	if !c.StartedAt.IsZero() && c.FinishedAt.Sub(c.StartedAt) >= backoffForgetting {
		return c.FinishedAt, first
	}
	if wait <= 0 {
		return c.FinishedAt, first
	}
	return c.FinishedAt.Add(wait), min(2*wait, longest)
}
