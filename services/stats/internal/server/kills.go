package server

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/services/stats/internal/cgroup"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/kernellog"
)

const (
	// namesWait is how long kills are kept back from a new stream until podsync has named
	// their containers: of one without a name nothing is recorded on the pod. podsync has
	// a list before it has heard of all.
	namesWait = 10 * time.Second
	// oldKill is a kill of whose container it may know nothing any more.
	oldKill = 10 * time.Minute
)

// WatchOOMKills implements StatsService.
func (s *Server) WatchOOMKills(_ *statsv1.WatchOOMKillsRequest, stream grpc.ServerStreamingServer[statsv1.WatchOOMKillsResponse]) error {
	ctx := stream.Context()
	known, cancel := context.WithTimeout(ctx, namesWait)
	defer cancel()
	var last uint64
	for revision := uint64(1); ; {
		kills, changed := s.Kernel.After(last)
		if len(kills) > 0 || revision == 1 {
			names := s.awaitNames(known, kills)
			frame := &statsv1.WatchOOMKillsResponse{Epoch: s.Epoch, Revision: revision, Snapshot: revision == 1}
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

// awaitNames waits until the containers of kills have names, or ctx is done.
func (s *Server) awaitNames(ctx context.Context, kills []kernellog.Kill) inventory.View {
	for {
		names, changed := s.Names.Follow()
		if !slices.ContainsFunc(kills, func(k kernellog.Kill) bool { return nameless(k, names) }) {
			return names
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return names
		}
	}
}

// nameless says whether the process was a container's that has no name yet. One that podsync
// has had the time to name has been removed, as the earlier ends of a container that crashes
// again and again are, or is not of this node's pods.
func nameless(k kernellog.Kill, names inventory.View) bool {
	_, ok := containerOf(k.Cgroup, names)
	had := !names.Begun.IsZero() && time.Since(names.Begun) >= namesWait && time.Since(k.Time) >= namesWait
	if ok || had || time.Since(k.Time) >= oldKill || names.PodsCgroup != "" && !strings.Contains(k.Cgroup, names.PodsCgroup+"/") {
		return false
	}
	return slices.ContainsFunc(strings.Split(k.Cgroup, "/"), cgroup.LooksLikeContainer)
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
