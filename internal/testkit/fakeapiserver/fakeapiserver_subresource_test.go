package fakeapiserver_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestEphemeralContainersAreAddedThroughTheirSubresourceAndNeverRemoved(t *testing.T) {
	s := fakeapiserver.New(fakeapiserver.Config{})
	defer s.Close()
	c := s.Client()
	mustCreate(t, c, pod("a", "n1"))
	pods := c.CoreV1().Pods("ns")
	now := s.Pod("ns", "a")
	now.Spec.Containers[0].Image = "another"
	now.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "i"}}}
	got, err := pods.UpdateEphemeralContainers(t.Context(), "a", now, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Spec.EphemeralContainers) != 1 || got.Spec.Containers[0].Image == "another" || got.Generation != 2 {
		t.Errorf("got %+v, generation %d", got.Spec, got.Generation)
	}
	got.Spec.EphemeralContainers = nil
	if _, err := pods.UpdateEphemeralContainers(t.Context(), "a", got, metav1.UpdateOptions{}); err == nil {
		t.Error("an ephemeral container was removed")
	}
}

func TestAClientThatAsksForProtobufGetsTheSameAsOneThatAsksForJSON(t *testing.T) {
	s := fakeapiserver.New(fakeapiserver.Config{})
	defer s.Close()
	cfg := s.RESTConfig()
	cfg.ContentType, cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	proto, json := kubernetes.NewForConfigOrDie(cfg), s.Client()
	mustCreate(t, proto, pod("a", "n1"))
	mustCreate(t, json, pod("b", "n1"))
	for _, c := range []kubernetes.Interface{proto, json} {
		list, err := c.CoreV1().Pods("ns").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 2 || list.Items[1].Name != "b" || list.Items[1].UID != s.Pod("ns", "b").UID || list.ResourceVersion == "" {
			t.Errorf("list %+v, %v", list, err)
		}
		one, err := c.CoreV1().Pods("ns").Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil || one.UID != s.Pod("ns", "a").UID || !one.CreationTimestamp.Equal(&s.Pod("ns", "a").CreationTimestamp) {
			t.Errorf("get %+v, %v", one, err)
		}
		if _, err := c.CoreV1().Pods("ns").Get(t.Context(), "none", metav1.GetOptions{}); err == nil {
			t.Error("a pod that is not there was got")
		}
	}
}
