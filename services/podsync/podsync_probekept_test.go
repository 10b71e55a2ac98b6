package podsync

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/probestore"
)

// What takes the signal and ends well would count as done: a Job would have succeeded
// whose work hung.
func TestWhatAProbeHasKilledWhilePodsyncWasAwayStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, api, with := newClusterLives(t, fakecri.Script{Runs: []fakecri.Run{{For: -1}}, OnTerm: fakecri.Term{After: 5 * time.Second}}, nil)
		l.live(with, func(s *Service) {
			time.Sleep(time.Second)
			l.create(api, v1.PodSpec{RestartPolicy: v1.RestartPolicyOnFailure}, v1.Container{
				LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}},
			})
			time.Sleep(5 * time.Second)
			pod := api.Pod("default", "p")
			s.probes.Report([]probestore.Result{{
				Key: probestore.Key{UID: pod.UID, ProbeKey: podstate.ProbeKey{Container: "c", Type: podstate.Liveness}}, Known: true,
				ProbeResult: podstate.ProbeResult{ContainerID: l.rt.Snapshot().Containers[0].ID},
			}}, nil)
			time.Sleep(time.Second)
		})
		time.Sleep(10 * time.Second)
		if c := l.rt.Snapshot().Containers; len(c) != 1 || podutil.TerminalPhase(api.Pod("default", "p").Status.Phase) {
			t.Fatalf("containers %+v, pod %+v", c, api.Pod("default", "p").Status)
		}
		l.live(with, func(*Service) { time.Sleep(time.Minute) })
		if st := api.Pod("default", "p").Status; st.Phase != v1.PodRunning || st.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("phase %s, containers %+v", st.Phase, st.ContainerStatuses)
		}
	})
}
