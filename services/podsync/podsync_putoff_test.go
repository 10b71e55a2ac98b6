package podsync

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// edge is a node that is short of memory, and a controller that makes pods anew.
type edge struct {
	*testing.T
	api *fakeapiserver.Server
	rpc serving
}

func (e *edge) press(conditions ...string) {
	e.Helper()
	if _, err := e.rpc.SetPressure(e.Context(), &podsyncv1.SetPressureRequest{Conditions: conditions, Ttl: durationpb.New(time.Hour)}); err != nil {
		e.Error(err)
	}
}

func (e *edge) create(name string) {
	e.Helper()
	yes, grace := true, int64(1)
	if _, err := e.api.Admin().CoreV1().Pods("default").Create(e.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "hog", UID: "hog", Controller: &yes}}},
		Spec: v1.PodSpec{NodeName: "n1", TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{{
			Name: "c", Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent,
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}},
		}}},
	}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

func (e *edge) is(name string, phase v1.PodPhase) {
	e.Helper()
	if pod := e.api.Pod("default", name); pod == nil || pod.Status.Phase != phase {
		e.Errorf("%s is to be %s: %+v", name, phase, pod)
	}
}

// evict has a pod that runs evicted.
func (e *edge) evict(name string) {
	e.Helper()
	const message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
	if _, err := e.rpc.StopPod(e.Context(), &podsyncv1.StopPodRequest{
		Pod: &podsyncv1.PodRef{Namespace: "default", Name: name, Uid: string(e.api.Pod("default", name).UID)}, Reason: "Evicted", Message: message,
		Grace: durationpb.New(0), DisruptionReason: v1.PodReasonTerminationByKubelet, DisruptionMessage: message,
	}); err != nil {
		e.Fatal(err)
	}
	time.Sleep(time.Second)
	e.is(name, v1.PodFailed)
}

// waits wants a pod to wait for the node's shortage, and says for how long still.
func (e *edge) waits(name string) time.Duration {
	e.Helper()
	e.is(name, v1.PodPending)
	resp, err := e.rpc.ExplainPod(e.Context(), &podsyncv1.ExplainPodRequest{Pod: &podsyncv1.PodRef{Namespace: "default", Name: name}})
	if err != nil {
		e.Fatal(err)
	}
	if w := resp.GetWaits(); len(w) != 1 || w[0].GetKind() != "pressure" || !strings.Contains(w[0].GetReason(), "pods of ReplicaSet hog because it was low on memory") {
		e.Fatalf("%s waits for %v", name, w)
	}
	return time.Until(resp.GetWaits()[0].GetRetryTime().AsTime())
}

// The third one waits, also where podsync dies meanwhile, until whoever measures says
// that the node is short of nothing.
func TestAPodOfAControllerWhosePodsAreEvictedAgainAndAgainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, api, with := newClusterLives(t, fakecri.Script{Runs: []fakecri.Run{{For: -1}}}, func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{} })
		e := &edge{T: t, api: api}
		l.live(with, func(s *Service) {
			s.Register(&e.rpc)
			time.Sleep(time.Second)
			e.press("MemoryPressure")
			for i := range 3 {
				name := fmt.Sprint("hog-", i)
				e.create(name)
				time.Sleep(2 * time.Second)
				if i == 2 { // 10 s from the end of the one before: a second after it was ended, and two.
					if left := e.waits(name); left < 6*time.Second || left > 8*time.Second {
						t.Errorf("the third waits for %v still", left)
					}
					time.Sleep(8 * time.Second)
				}
				e.is(name, v1.PodRunning)
				e.evict(name)
			}
			e.create("hog-3")
			time.Sleep(time.Second)
			if left := e.waits("hog-3"); left < 17*time.Second {
				t.Errorf("the fourth waits for %v still", left)
			}
		})
		l.live(with, func(s *Service) {
			s.Register(&e.rpc)
			e.press("MemoryPressure")
			time.Sleep(time.Second)
			if left := e.waits("hog-3"); left < 13*time.Second || left > 18*time.Second {
				t.Errorf("after podsync's death the fourth waits for %v still", left)
			}
			e.press()
			time.Sleep(time.Second)
			e.is("hog-3", v1.PodRunning)
		})
		told := 0
		for _, event := range api.Events() {
			if event.Reason == "BackOff" && event.Type == v1.EventTypeWarning && strings.HasPrefix(event.Message, "Back-off starting pod for ") {
				told++
			}
		}
		if told != 3 { // hog-2, and hog-3 of each podsync
			t.Errorf("%d events say so: %v", told, api.Events())
		}
	})
}
