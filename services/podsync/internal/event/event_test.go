package event

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}, InitContainers: []v1.Container{{Name: "i"}}},
	}
}

func TestEventsOfBeforeAndAfterRunReachTheApiserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapiserver.New(fakeapiserver.Config{Seed: 1})
		defer server.Close()
		r := New(Config{NodeName: "n"}, Deps{Client: server.Client()})
		r.Container(testPod(), "c", v1.EventTypeNormal, "Pulling", "early")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		// client-go names an event after its nanosecond, and virtual time stands still.
		time.Sleep(time.Millisecond)
		r.Container(testPod(), "i", v1.EventTypeWarning, "BackOff", "of an init container")
		time.Sleep(time.Millisecond)
		r.Pod(testPod(), v1.EventTypeWarning, "FailedMount", "of the pod")
		time.Sleep(time.Millisecond)
		r.Node(v1.EventTypeWarning, "FailedValidation", "of the node")
		time.Sleep(time.Minute)
		list, err := server.Admin().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]v1.Event{}
		for _, e := range list.Items {
			got[e.Reason] = e
		}
		if len(got) != 4 || got["FailedValidation"].InvolvedObject.Kind != "Node" || got["FailedValidation"].InvolvedObject.Name != "n" || got["Pulling"].InvolvedObject.FieldPath != "spec.containers{c}" || got["BackOff"].InvolvedObject.FieldPath != "spec.initContainers{i}" || got["FailedMount"].InvolvedObject.FieldPath != "" {
			t.Fatalf("events %+v", got)
		}
		if e := got["Pulling"]; e.Source.Component != "kubelet" || e.Source.Host != "n" || e.InvolvedObject.UID != "u" {
			t.Fatalf("event %+v", e)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	})
}

func TestWithoutAnApiserverEventsHurtNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{NodeName: "n"}, Deps{})
		for range 2 * kept {
			r.Pod(testPod(), v1.EventTypeNormal, "X", "early")
		}
		if len(r.early) != kept {
			t.Fatalf("%d events are kept, want %d", len(r.early), kept)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		r.Pod(testPod(), v1.EventTypeNormal, "X", "y")
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}
