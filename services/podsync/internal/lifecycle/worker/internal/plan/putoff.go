package plan

import v1 "k8s.io/api/core/v1"

// HasStarted says whether something of the pod was started, here or in a previous run: its
// start is not put off any more.
func (s *State) HasStarted() bool {
	st := &s.Reported
	if len(s.Observed.Sandboxes) > 0 || len(s.Observed.Containers) > 0 || st.Phase != "" && st.Phase != v1.PodPending {
		return true
	}
	for _, list := range [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for i := range list {
			if list[i].ContainerID != "" || list[i].RestartCount > 0 {
				return true
			}
		}
	}
	return false
}

// putOff says whether nothing of the pod is to be started yet, though it was admitted.
func (p *planner) putOff() bool {
	off := p.s.PutOff
	if off == nil || !p.s.Now.Before(off.Until) {
		return false
	}
	p.wake(off.Until)
	p.wait("pressure", "", off.Reason, off.Advice, off.Until)
	return true
}
