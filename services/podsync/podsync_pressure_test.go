package podsync

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// serving takes the server that a Service registers.
type serving struct {
	podsyncv1.PodSyncServiceServer
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *serving) RegisterService(_ *grpc.ServiceDesc, impl any) {
	if server, ok := impl.(podsyncv1.PodSyncServiceServer); ok {
		s.PodSyncServiceServer = server
	}
}

func TestANodeUnderPressureEndsAPodKeepsOthersAwayAndMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, api, with := newClusterLives(t, fakecri.Script{Runs: []fakecri.Run{{For: -1}}}, func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{} })
		l.live(with, func(s *Service) {
			var rpc serving
			s.Register(&rpc)
			stop := func() error {
				pod := api.Pod("default", "p")
				_, err := rpc.StopPod(t.Context(), &podsyncv1.StopPodRequest{
					Pod: &podsyncv1.PodRef{Namespace: "default", Name: "p", Uid: string(pod.UID)}, Reason: "Evicted", Message: "low",
					Grace: durationpb.New(0), EventAnnotations: map[string]string{"starved_resource": "memory"},
				})
				return err
			}
			press := func(conditions ...string) {
				if _, err := rpc.SetPressure(t.Context(), &podsyncv1.SetPressureRequest{Conditions: conditions}); err != nil {
					t.Error(err)
				}
			}
			again := func() v1.PodStatus {
				if err := api.Admin().CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Second)
				l.create(api, v1.PodSpec{}, v1.Container{})
				time.Sleep(10 * time.Second)
				return api.Pod("default", "p").Status
			}
			time.Sleep(time.Second)
			l.create(api, v1.PodSpec{}, v1.Container{})
			time.Sleep(10 * time.Second)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			if st := api.Pod("default", "p").Status; st.Phase != v1.PodFailed || st.Reason != "Evicted" || st.Message != "low" {
				t.Errorf("status %+v", st)
			}
			if err := stop(); !errors.Is(err, rpcerr.ErrNotFound) {
				t.Errorf("once more: %v", err)
			}
			var evicted []v1.Event
			for _, e := range api.Events() {
				if e.Reason == "Evicted" {
					evicted = append(evicted, e)
				}
			}
			if len(evicted) != 1 || evicted[0].Type != v1.EventTypeWarning || evicted[0].Annotations["starved_resource"] != "memory" {
				t.Errorf("events %+v", evicted)
			}
			freed, err := rpc.Reclaim(t.Context(), &podsyncv1.ReclaimRequest{Containers: true, Images: true})
			if err != nil || freed.GetContainers() != 2 || freed.GetImages() != 1 || len(freed.GetFailed()) != 0 {
				t.Errorf("freed %v, %v", freed, err)
			}
			l.rt.SetImage("app:1", fakecri.RemoteImage{})
			press("MemoryPressure", "DiskPressure")
			if st := again(); st.Reason != "Evicted" || st.Message != "Pod was rejected: The node had condition: [MemoryPressure DiskPressure]. " {
				t.Errorf("under pressure: %+v", st)
			}
			// Whoever measures goes on by it after a restart of its own.
			if r, err := rpc.GetRuntime(t.Context(), &podsyncv1.GetRuntimeRequest{}); err != nil || len(r.GetToldPressure().GetConditions()) != 2 || !r.GetToldPressure().GetTime().IsValid() {
				t.Errorf("%v, %v", r.GetToldPressure(), err)
			}
			press()
			if st := again(); st.Phase != v1.PodRunning {
				t.Errorf("without pressure: %+v", st)
			}
		})
	})
}
