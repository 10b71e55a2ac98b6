package server

import (
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/kernellog"
)

// WatchOOMKills implements StatsService.
func (s *Server) WatchOOMKills(_ *statsv1.WatchOOMKillsRequest, stream grpc.ServerStreamingServer[statsv1.WatchOOMKillsResponse]) error {
	ctx := stream.Context()
	var last uint64
	for revision := uint64(1); ; {
		kills, changed := s.Kernel.After(last)
		if len(kills) > 0 || revision == 1 {
			frame := &statsv1.WatchOOMKillsResponse{Epoch: s.Epoch, Revision: revision, Snapshot: revision == 1}
			names := s.Names.View()
			for _, k := range kills {
				frame.Kills = append(frame.Kills, killOf(k, names))
				last = k.Sequence
			}
			if err := stream.Send(frame); err != nil {
				return err
			}
			revision++
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// killOf names the pod whose process it was.
func killOf(k kernellog.Kill, names inventory.View) *statsv1.OOMKill {
	out := &statsv1.OOMKill{
		Sequence: k.Sequence, Time: timestamppb.New(k.Time), Process: k.Process, Pid: int32(k.PID), //nolint:gosec // The kernel's have 22 bits.
		System: k.System, Cgroup: k.Cgroup, LimitCgroup: k.Limit,
	}
	if c, ok := containerOf(k.Cgroup, names); ok {
		out.PodNamespace, out.PodName, out.PodUid, out.Container = c.Pod.Namespace, c.Pod.Name, c.Pod.UID, c.Name
	}
	return out
}

// containerOf is the outermost container that a cgroup is in: what a container makes
// within its own is its own, and may have any name.
func containerOf(name string, names inventory.View) (out inventory.Container, found bool) {
	for element := range strings.SplitSeq(name, "/") {
		if c, ok := names.Containers[cgroup.ContainerID(element)]; ok && element != "" {
			return c, true
		}
	}
	return out, false
}
