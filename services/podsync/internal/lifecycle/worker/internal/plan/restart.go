package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// restarts says whether the container is to start again after this exit. If it
// was not podsync that ended it to start it again, the first of its rules that
// matches decides, then its own policy, then the pod's.
// Source: KEP-5307.
func (p *planner) restarts(v *view, c *podstate.Container) bool {
	if v.class == ephemeral {
		return false
	}
	if v.stale(c) {
		return true // all containers of the pod are restarted
	}
	if v.renewed(c) || p.owed(v, c) {
		return true
	}
	return p.byPolicy(v, c)
}

// byPolicy says whether rules and policies alone start the container again. A
// definition that changed after it had ended does not.
func (p *planner) byPolicy(v *view, c *podstate.Container) bool {
	if p.rule(v, c) != "" {
		return true
	}
	if v.class == sidecar {
		return true
	}
	failed := c.ExitCode != 0 || v.class == ordinaryInit && endedBadly(c)
	if own := v.spec.RestartPolicy; own != nil && !p.s.Node.NoRestartRules {
		switch *own {
		case v1.ContainerRestartPolicyAlways:
			return true
		case v1.ContainerRestartPolicyOnFailure:
			return failed
		case v1.ContainerRestartPolicyNever:
			return false
		}
	}
	switch p.s.Pod.Spec.RestartPolicy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return failed
	default:
		// An init container that did its work has done it.
		return v.class != ordinaryInit || failed
	}
}

// rule is the action of the first of the container's rules that matches its
// exit; empty when none does, or when that action is unknown or its gate is off:
// then the policies decide, not a rule further on.
func (p *planner) rule(v *view, c *podstate.Container) v1.ContainerRestartRuleAction {
	if p.s.Node.NoRestartRules || c.State != podstate.StateExited {
		return ""
	}
	for _, r := range v.spec.RestartPolicyRules {
		if !exitMatches(r.ExitCodes, c.ExitCode) {
			continue
		}
		if r.Action == v1.ContainerRestartRuleActionRestart ||
			r.Action == v1.ContainerRestartRuleActionRestartAllContainers && !p.s.Node.NoRestartAll {
			return r.Action
		}
		return ""
	}
	return ""
}

func exitMatches(on *v1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if on == nil {
		return false
	}
	switch on.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return slices.Contains(on.Values, code)
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !slices.Contains(on.Values, code)
	default:
		return false
	}
}
