package podsync

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/probestore"
)

// What takes the signal and ends well would count as done: a Job would have succeeded
// whose work hung.
func TestWhatAProbeHasKilledWhilePodsyncWasAwayStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fakecri.New(fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{
			"app:1": {Runs: []fakecri.Run{{For: -1}}, OnTerm: fakecri.Term{After: 5 * time.Second}},
		}})
		defer rt.Close()
		api := fakeapiserver.New(fakeapiserver.Config{})
		defer api.Close()
		admin := api.Admin().CoreV1()
		if _, err := admin.Nodes().Create(t.Context(), &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Status:     v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		l := &lives{T: t, dir: t.TempDir(), rt: rt}
		with := func(c *Config, d *Deps) { c.StaticPods.Path, d.Client = "", api.Client() }
		l.live(with, func(s *Service) {
			time.Sleep(time.Second)
			if _, err := admin.Pods("default").Create(t.Context(), &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
				Spec: v1.PodSpec{
					NodeName: "n1", RestartPolicy: v1.RestartPolicyOnFailure,
					Containers: []v1.Container{{
						Name: "c", Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent,
						LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}},
					}},
				},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			pod := api.Pod("default", "p")
			s.probes.Report([]probestore.Result{{
				Key: probestore.Key{UID: pod.UID, ProbeKey: podstate.ProbeKey{Container: "c", Type: podstate.Liveness}}, Known: true,
				ProbeResult: podstate.ProbeResult{ContainerID: rt.Snapshot().Containers[0].ID},
			}}, nil)
			time.Sleep(time.Second)
		})
		time.Sleep(10 * time.Second)
		if c := rt.Snapshot().Containers; len(c) != 1 || podutil.TerminalPhase(api.Pod("default", "p").Status.Phase) {
			t.Fatalf("containers %+v, pod %+v", c, api.Pod("default", "p").Status)
		}
		l.live(with, func(*Service) { time.Sleep(time.Minute) })
		if st := api.Pod("default", "p").Status; st.Phase != v1.PodRunning || st.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("phase %s, containers %+v", st.Phase, st.ContainerStatuses)
		}
	})
}
