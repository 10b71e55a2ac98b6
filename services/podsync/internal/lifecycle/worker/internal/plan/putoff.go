package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// MayBePutOff says whether the pod's start may be put off, once it is known what there is
// of it: it was admitted and is wanted.
func (s *State) MayBePutOff() bool {
	return s.Admission.Decision == podstate.Admitted && s.Observed.Known && !s.Unwanted()
}

// PutOffUntil is until when its start is put off that would be until a time: a pod with a
// deadline waits for a tenth of it at most, for its time runs meanwhile, and one that ends
// by that was not disrupted.
func (s *State) PutOffUntil(until, now time.Time) time.Time {
	limit := s.Pod.Spec.ActiveDeadlineSeconds
	if limit == nil {
		return until
	}
	began := now
	if s.Reported.StartTime != nil {
		began = s.Reported.StartTime.Time
	}
	if latest := began.Add(podutil.Seconds(*limit) / 10); latest.Before(until) {
		return latest
	}
	return until
}

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
