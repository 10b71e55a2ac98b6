package plan

import "time"

// usableSandbox is the sandbox that containers can run in; nil when a new one
// is needed.
func usableSandbox(s *State) *Sandbox {
	if len(s.Observed.Sandboxes) == 0 || s.Pod == nil {
		return nil
	}
	ready := 0
	for i := range s.Observed.Sandboxes {
		if s.Observed.Sandboxes[i].Ready {
			ready++
		}
	}
	newest := &s.Observed.Sandboxes[0]
	switch {
	case ready != 1, !newest.Ready:
		return nil
	case newest.HostNetwork != s.Pod.Spec.HostNetwork:
		return nil
	case !newest.HostNetwork && len(newest.IPs) == 0:
		return nil
	}
	if _, stopping := s.InFlight[Key{StopSandbox, newest.ID}]; stopping {
		return nil
	}
	return newest
}

// podStarted is when the pod began. The reported status says so, or, for a pod
// that no apiserver has told this process of, the oldest record of its sandboxes.
func (p *planner) podStarted() time.Time {
	if t := p.s.Reported.StartTime; t != nil {
		return t.Time
	}
	began := p.s.Now
	for i := range p.s.Observed.Sandboxes {
		if t := p.s.Observed.Sandboxes[i].PodStarted; !t.IsZero() && t.Before(began) {
			began = t
		}
	}
	return began
}

// nextAttempt is the attempt number of the next sandbox.
func nextAttempt(s *State) int {
	if len(s.Observed.Sandboxes) == 0 {
		return 0
	}
	return int(s.Observed.Sandboxes[0].Attempt) + 1
}
