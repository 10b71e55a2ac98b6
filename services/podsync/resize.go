package podsync

import (
	"path/filepath"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/admission"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// resize decides on a resize: what this node can never do is infeasible, and
// what admission would not take now is deferred.
func (s *Service) resize(q worker.ResizeQuestion) *podstate.ResizePending {
	if why := resize.Infeasible(q.Pod, q.Allocated, q.Static, resize.Policies(s.cfg.Resize)); why != "" {
		return &podstate.ResizePending{Reason: v1.PodReasonInfeasible, Message: why}
	}
	node := s.node.Load()
	in := admission.Input{
		Pod: q.Pod, Static: q.Static, Standalone: s.cfg.Standalone, Node: node, Active: q.Active, Resize: true,
		Host: s.hostFacts(q.Pod, node),
	}
	if in.Standalone {
		in.Allocatable = s.allocatable()
	}
	if a := admission.Check(in); a.Decision != podstate.Admitted {
		return &podstate.ResizePending{Reason: v1.PodReasonDeferred, Cause: a.Reason, Message: a.Message}
	}
	return nil
}

// loadAllocations reads what resizes of a previous run were allocated, or what
// a kubelet had allocated before the first one.
func (s *Service) loadAllocations(log logr.Logger) {
	if err := s.allocations.Load(); err != nil {
		log.Error(err, "What resized pods were allocated is lost; they have what their statuses say, or else what their sandboxes were made with, and what their specs ask beyond that is decided on anew")
	}
	pods, err := s.allocations.Adopt(filepath.Join(s.cfg.RootDir, "allocated_pods_state"))
	switch {
	case err != nil:
		log.Error(err, "Nothing was taken over of what a kubelet had allocated")
	case pods > 0:
		log.Info("Took over what a kubelet had allocated", "pods", pods)
	}
}
