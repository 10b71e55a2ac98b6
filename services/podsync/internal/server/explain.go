package server

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// ExplainPod implements PodSyncService.
func (s *Server) ExplainPod(_ context.Context, req *podsyncv1.ExplainPodRequest) (*podsyncv1.ExplainPodResponse, error) {
	pod, err := s.find(req.GetPod())
	if err != nil {
		return nil, err
	}
	resp := &podsyncv1.ExplainPodResponse{Pod: refOf(pod.Pod.UID, pod.Pod.Namespace, pod.Pod.Name), Phase: string(pod.Status.Phase)}
	if s.deps.Explain == nil {
		return resp, nil
	}
	why, _ := s.deps.Explain.Explain(pod.Pod.UID)
	for _, w := range why.Waits {
		resp.Waits = append(resp.Waits, &podsyncv1.Wait{
			Kind: w.Kind, Object: w.Object, Reason: w.Reason, Advice: w.Advice, Since: stamp(w.Since), RetryTime: stamp(w.Retry),
		})
	}
	for _, step := range why.Timeline {
		entry := &podsyncv1.TimelineEntry{Time: stamp(step.At), Step: step.What, Object: step.Object, Error: step.Error}
		if step.Took > 0 {
			entry.Duration = durationpb.New(step.Took)
		}
		resp.Timeline = append(resp.Timeline, entry)
	}
	return resp, nil
}
