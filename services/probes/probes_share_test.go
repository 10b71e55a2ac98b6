package probes

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpc"
)

// TestOneNamespaceWhoseProbesHangLeavesOthersTheirs: a probe may take as long as its
// spec says. The commands of all of them go over one connection, which has so many
// calls at once.
func TestOneNamespaceWhoseProbesHangLeavesOthersTheirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		f := &fakePodsync{epoch: 1, exec: func(_ int, req *podsyncv1.ExecProbeRequest) (int32, error) {
			if strings.HasPrefix(req.GetKey().GetPodUid(), "theirs") {
				<-over
			}
			return 0, nil
		}}
		for i := range 2 * rpc.MaxStreams {
			f.snapshot = append(f.snapshot, execTarget(readiness, "a", func(t *podsyncv1.ProbeTarget) {
				t.Key.PodUid, t.Pod.Namespace, t.TimeoutSeconds, t.PeriodSeconds = fmt.Sprintf("theirs-%d", i), "theirs", 24*3600, 10
			}))
		}
		n := newNode(t, f)
		defer n.close()
		settle(10 * time.Second)
		f.send <- &podsyncv1.SyncProbesResponse{Revision: 2, Targets: []*podsyncv1.ProbeTarget{execTarget(readiness, "ours", nil)}}
		settle(30 * time.Second)
		if got := f.seen(); got != "readiness:success@ours" {
			t.Errorf("while probes of another namespace hang: %.100q, want that ours succeeded", got)
		}
		close(over)
		settle(30 * time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		ready := map[string]bool{}
		for _, r := range f.results {
			if r.GetOutcome() == success {
				ready[r.GetKey().GetPodUid()] = true
			}
		}
		if want := 2*rpc.MaxStreams + 1; len(ready) != want {
			t.Errorf("once they hang no more %d are ready, want %d", len(ready), want)
		}
	})
}
