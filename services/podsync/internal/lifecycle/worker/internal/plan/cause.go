package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// stopCause is why a container ended if it was podsync that ended it. What a
// previous run did is known of a failed probe alone, whose result is kept.
func (p *planner) stopCause(c *podstate.Container) (cause podstate.Cause, ours bool) {
	if stop, ours := p.s.Stops[c.ID]; ours {
		return stop.Cause, true
	}
	if p.failed(c, podstate.Startup) || p.failed(c, podstate.Liveness) {
		return podstate.CauseProbe, true
	}
	return podstate.CauseEnd, false
}

// owed says whether the end of a container was the first half of a restart: it
// starts again whatever it exits with. What was told to be waiting for its
// start, perhaps by a previous run, still is.
func (p *planner) owed(v *view, c *podstate.Container) bool {
	if v.class != regular || c.State != podstate.StateExited {
		return false // a sidecar always starts again, an init container as its exit says
	}
	if p.toRestart(v, c) {
		return true
	}
	r := v.told
	if r == nil || r.State.Waiting == nil || r.LastTerminationState.Terminated == nil {
		return false
	}
	return podutil.BareID(r.LastTerminationState.Terminated.ContainerID) == c.ID
}

// toRestart says whether podsync is known to have ended the container so that
// it starts again.
func (p *planner) toRestart(v *view, c *podstate.Container) bool {
	cause, ours := p.stopCause(c)
	return ours && p.restartsAfter(v, cause)
}

// restartsAfter says whether a container that podsync stops for this cause is
// started again for certain. Where it is not, its exit decides.
func (p *planner) restartsAfter(v *view, cause podstate.Cause) bool {
	switch cause {
	case podstate.CauseDefinition, podstate.CauseUnknown, podstate.CauseResize, podstate.CauseRound:
		return true
	case podstate.CauseProbe, podstate.CauseSandbox:
		// A container that died with its sandbox is asked to end, too, when that
		// is not known yet: what it is told must not make a difference.
		if own := v.spec.RestartPolicy; own != nil && !p.s.Node.NoRestartRules {
			return *own != v1.ContainerRestartPolicyNever
		}
		return p.s.Pod.Spec.RestartPolicy != v1.RestartPolicyNever
	default:
		return false
	}
}

// mayLeave says whether the API lets a container that was told to have ended
// with an exit code be told to run again.
// Source: the validation of updates of a pod's status.
func (p *planner) mayLeave(v *view, code int32) bool {
	if p.mayRestartAll() {
		return true
	}
	if v.class == ephemeral {
		return false
	}
	for _, r := range v.spec.RestartPolicyRules {
		if exitMatches(r.ExitCodes, code) {
			return true
		}
	}
	policy := p.s.Pod.Spec.RestartPolicy
	if own := v.spec.RestartPolicy; own != nil {
		policy = v1.RestartPolicy(*own) // the words are the same
	}
	return policy == v1.RestartPolicyAlways || policy == v1.RestartPolicyOnFailure && code != 0
}
