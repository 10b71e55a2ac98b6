package server

import (
	"cmp"
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/explain"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// ListVolumes implements PodSyncService.
func (s *Server) ListVolumes(ctx context.Context, r *podsyncv1.ListVolumesRequest) (*podsyncv1.ListVolumesResponse, error) {
	if s.deps.Volumes == nil {
		return s.UnimplementedPodSyncServiceServer.ListVolumes(ctx, r)
	}
	resp := &podsyncv1.ListVolumesResponse{}
	if r.GetNamespace() != "" || r.GetName() != "" {
		pod, err := s.find(&podsyncv1.PodRef{Namespace: r.GetNamespace(), Name: r.GetName()})
		if err != nil {
			return nil, err
		}
		resp.Pods = append(resp.Pods, s.volumesOf(pod.Pod, pod.Status.Phase))
		return resp, nil
	}
	for _, pod := range s.deps.Pods.List() {
		if len(pod.Pod.Spec.Volumes) > 0 {
			resp.Pods = append(resp.Pods, s.volumesOf(pod.Pod, pod.Status.Phase))
		}
	}
	slices.SortFunc(resp.Pods, func(a, b *podsyncv1.PodVolumeStates) int {
		return cmp.Or(cmp.Compare(a.Pod.GetNamespace(), b.Pod.GetNamespace()), cmp.Compare(a.Pod.GetName(), b.Pod.GetName()))
	})
	if left := s.withoutPod(); len(left) > 0 {
		resp.Pods = append(resp.Pods, &podsyncv1.PodVolumeStates{Volumes: left})
	}
	return resp, nil
}

// withoutPod are the volumes that no pod has and that could not be taken from the node, each
// with why.
func (s *Server) withoutPod() (left []*podsyncv1.VolumeState) {
	if s.deps.Unsettled == nil {
		return nil
	}
	for _, v := range s.deps.Unsettled.Unsettled() {
		why := podstate.Wait{Kind: "volume", Object: v.Handle, Reason: v.Why, Advice: v.Advice, Since: v.Since, Retry: v.Retry}
		left = append(left, &podsyncv1.VolumeState{
			Name: v.Handle, Plugin: v.Plugin, Driver: v.Driver, PvName: v.PV, Standing: podsyncv1.VolumeStanding_VOLUME_STANDING_GOING,
			HostPath: v.Path, Device: v.Device, Waits: waitMessages([]podstate.Wait{why}),
		})
	}
	return left
}

// volumesOf are the volumes of a pod, each with what it waits for.
func (s *Server) volumesOf(pod *v1.Pod, phase v1.PodPhase) *podsyncv1.PodVolumeStates {
	waits := map[string][]*podsyncv1.Wait{}
	if s.deps.Explain != nil {
		if why, ok := s.deps.Explain.Explain(pod.UID); ok {
			for _, w := range waitMessages(explain.Waits(why, nil)) {
				if w.GetKind() == "volume" {
					waits[w.GetObject()] = append(waits[w.GetObject()], w)
				}
			}
		}
	}
	out := &podsyncv1.PodVolumeStates{Pod: refOf(pod.UID, pod.Namespace, pod.Name)}
	for _, v := range s.deps.Volumes.Standings(pod, phase == v1.PodSucceeded || phase == v1.PodFailed) {
		out.Volumes = append(out.Volumes, &podsyncv1.VolumeState{
			Name: v.Name, Plugin: v.Plugin, Driver: v.Driver, PvcName: v.Claim, PvName: v.PV, Standing: standingMessage(v.Progress),
			HostPath: v.Path, Device: v.Device, ProjectId: v.Project, Waits: waitsOf(v, waits),
		})
	}
	return out
}

// waitsOf are those of a volume among a pod's, by what they are about. At a pod's end that is
// what the volume's directory is called, and nothing once all that is left has failed.
func waitsOf(v volume.Standing, all map[string][]*podsyncv1.Wait) []*podsyncv1.Wait {
	switch v.Progress {
	case volume.Going:
	case volume.Gone: // What has its name is another.
		return nil
	default:
		return all[v.Name]
	}
	mine := all[cmp.Or(v.Dir, v.Name)]
	return append(mine[:len(mine):len(mine)], all[""]...)
}

func standingMessage(p volume.Progress) podsyncv1.VolumeStanding {
	switch p {
	case volume.Waiting:
		return podsyncv1.VolumeStanding_VOLUME_STANDING_WAITING
	case volume.Present:
		return podsyncv1.VolumeStanding_VOLUME_STANDING_PRESENT
	case volume.Unused:
		return podsyncv1.VolumeStanding_VOLUME_STANDING_UNUSED
	case volume.Going:
		return podsyncv1.VolumeStanding_VOLUME_STANDING_GOING
	case volume.Gone:
		return podsyncv1.VolumeStanding_VOLUME_STANDING_GONE
	}
	return podsyncv1.VolumeStanding_VOLUME_STANDING_UNSPECIFIED
}
