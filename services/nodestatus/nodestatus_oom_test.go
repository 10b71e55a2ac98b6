package nodestatus

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
)

// WatchOOMKills tells of one that was when the test began, and then of nothing.
func (s *stats) WatchOOMKills(_ *statsv1.WatchOOMKillsRequest, stream grpc.ServerStreamingServer[statsv1.WatchOOMKillsResponse]) error {
	s.mu.Lock()
	frame := &statsv1.WatchOOMKillsResponse{Epoch: 1, Revision: 1, Snapshot: true, Kills: s.kills}
	s.mu.Unlock()
	if err := stream.Send(frame); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func TestAKillForLackOfTheMachinesMemoryIsOneEventOfTheNodeAndOneOfThePodAcrossRestarts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.stats.kills = []*statsv1.OOMKill{{
			Sequence: 7, Time: timestamppb.Now(), Process: "eater", Pid: 42, System: true, PodNamespace: "shop", PodName: "web-0", PodUid: "u", Container: "web",
		}}
		for range 2 {
			_, stop := w.start()
			time.Sleep(time.Minute)
			w.statsSrv.Down()
			w.statsSrv.Up()
			time.Sleep(time.Minute)
			stop()
		}
		var node, pod []v1.Event
		for _, e := range w.api.Events() {
			switch e.Reason {
			case "SystemOOM":
				node = append(node, e)
			case "OOMKilling":
				pod = append(pod, e)
			}
		}
		if len(node) != 1 || node[0].Type != "Warning" || node[0].InvolvedObject.Kind != "Node" || node[0].Namespace != "default" ||
			node[0].Message != "System OOM encountered, victim process: eater, pid: 42" {
			t.Errorf("of the node %v", node)
		}
		if len(pod) != 1 || pod[0].Namespace != "shop" || pod[0].InvolvedObject.Name != "web-0" || pod[0].InvolvedObject.FieldPath != "spec.containers{web}" {
			t.Errorf("of the pod %v", pod)
		}
	})
}
