package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// Output is what to do.
type Output struct {
	// Actions to start now; none of them depends on another.
	Actions []podstate.Action
	// Cancel names running actions that are in the way: their context is to be
	// cancelled. They count as running until they return.
	Cancel []podstate.Key
	// Status to publish.
	Status v1.PodStatus
	// Targets are the probes that should run.
	Targets []podstate.Target
	// Waits says what the pod waits for, for people.
	Waits []podstate.Wait
	// Wake is when to plan again if nothing happens before; zero for never.
	Wake time.Time
	// Terminating is true from the first decision to end the pod on.
	Terminating bool
	// Stopped is true when the pod is to end and nothing of it runs any more;
	// its final status may go out.
	Stopped bool
	// Freed is true when the pod is to end and has nothing any more that another might
	// need: what is left of it are records, to be removed.
	Freed bool
	// Overdue is true when the node's own reason to end the pod is older than
	// the pod may take to end.
	Overdue bool
	// Done is true when nothing of the pod is left and the worker may end.
	Done bool
}
