package server

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

// A pod that is created as protobuf has any bytes in its strings: no apiserver looks
// whether they are UTF-8. Other pods' probes must not suffer from it.
func TestAProbeThatIsNoUTF8KeepsNobodysProbesAway(t *testing.T) {
	service := "\xff"
	for name, h := range map[string]v1.ProbeHandler{
		"exec":   {Exec: &v1.ExecAction{Command: []string{"sh\xff"}}},
		"path":   {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80), Path: "/\xff"}},
		"header": {HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80), HTTPHeaders: []v1.HTTPHeader{{Name: "a", Value: "\xff"}}}},
		"grpc":   {GRPC: &v1.GRPCAction{Port: 80, Service: &service}},
		"tcp":    {TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80), Host: "\xff"}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, r *rig) {
				key := podstate.ProbeKey{Container: "c", Type: podstate.Readiness}
				r.board.Set(runningPod().Pod, []podstate.Target{{ProbeKey: key, ContainerID: "c1", PodIP: "10.0.0.9"}})
				sent := &v1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "odd", Name: "o", UID: "o"},
					Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", ReadinessProbe: &v1.Probe{ProbeHandler: h}}}},
				}
				data, err := sent.Marshal()
				if err != nil {
					t.Fatal(err)
				}
				odd := &v1.Pod{}
				if err := odd.Unmarshal(data); err != nil {
					t.Fatalf("such a pod does not come any more: %v", err)
				}
				r.board.Set(odd, []podstate.Target{{ProbeKey: key, ContainerID: "o1", PodIP: "10.0.0.8"}})
				stream, err := r.client.SyncProbes(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = stream.CloseSend(); _, _ = stream.Recv() }()
				frame, err := stream.Recv()
				if err != nil || len(frame.GetTargets()) != 2 {
					t.Errorf("targets %v, error %v", frame, err)
				}
			})
		})
	}
}

// waitsFor waits for an image of its own in each pod.
type waitsFor struct {
	Explainer
	image map[types.UID]string
}

func (w waitsFor) Explain(uid types.UID) (podcache.Explanation, bool) {
	return podcache.Explanation{Waits: []podstate.Wait{{Kind: "image", Object: w.image[uid], Reason: "it is pulled"}}}, true
}

func TestAnImageThatIsNoUTF8HidesNobodysWaits(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		odd := runningPod()
		odd.Pod.UID, odd.Pod.Name = "o", "odd"
		r.pods.Set(odd)
		r.server.deps.Explain = waitsFor{image: map[types.UID]string{"o": "registry/\xff", runningPod().Pod.UID: "good"}}
		resp, err := r.client.ListWaits(t.Context(), &podsyncv1.ListWaitsRequest{})
		if err != nil || len(resp.GetPods()) != 2 || !strings.Contains(resp.String(), "good") {
			t.Errorf("response %v, error %v", resp, err)
		}
	})
}
