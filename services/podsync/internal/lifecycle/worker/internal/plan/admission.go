package plan

import "github.com/polylet/polylet/services/podsync/internal/podutil"

// Whether a pod is admitted says admission, which knows all pods of the node. What of a
// pod decides whether that is asked, and whether what it said may be taken back, is here.

// Admitted says whether admission is not asked, for it was in a previous run: the runtime
// has something of the pod, or it has begun, or has ended.
func (s *State) Admitted() bool {
	return len(s.Observed.Sandboxes) > 0 || s.Begun || podutil.TerminalPhase(s.Pod.Status.Phase)
}

// Unwanted says whether the pod is to end, so that nobody is to make room for it, nor to
// reject it.
func (s *State) Unwanted() bool {
	return s.Removed || s.Stop != nil || s.Pod == nil || s.Pod.DeletionTimestamp != nil
}

// MayBeElsewhere says whether a pod that was admitted and cannot have here what it needs
// is rejected after all, so that who made it makes another one elsewhere. One that has
// run goes on to wait.
func (s *State) MayBeElsewhere() bool { return len(s.Observed.Containers) == 0 }
