package event

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/podsync/internal/report/idle"
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
		time.Sleep(time.Millisecond)
		r.Annotated(testPod(), map[string]string{"starved_resource": "memory"}, v1.EventTypeWarning, "Evicted", "100% of it")
		time.Sleep(time.Millisecond)
		r.Claim(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default", UID: "claim"}}, v1.EventTypeNormal, "FileSystemResizeSuccessful", "of a claim")
		r.Volume(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "volume"}}, v1.EventTypeWarning, "FailedMountOnFilesystemMismatch", "of a volume")
		time.Sleep(time.Minute)
		list, err := server.Admin().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]v1.Event{}
		for _, e := range list.Items {
			got[e.Reason] = e
		}
		if o := got["FileSystemResizeSuccessful"].InvolvedObject; o.Kind != "PersistentVolumeClaim" || o.Name != "c" || o.UID != "claim" {
			t.Errorf("the event of a claim is of %+v", o)
		}
		if o := got["FailedMountOnFilesystemMismatch"].InvolvedObject; o.Kind != "PersistentVolume" || o.Name != "pv" || o.UID != "volume" || o.Namespace != "" {
			t.Errorf("the event of a volume is of %+v", o)
		}
		if len(got) != 7 || got["FailedValidation"].InvolvedObject.Kind != "Node" || got["FailedValidation"].InvolvedObject.Name != "n" || got["Pulling"].InvolvedObject.FieldPath != "spec.containers{c}" || got["BackOff"].InvolvedObject.FieldPath != "spec.initContainers{i}" || got["FailedMount"].InvolvedObject.FieldPath != "" {
			t.Fatalf("events %+v", got)
		}
		if e := got["Evicted"]; e.Annotations["starved_resource"] != "memory" || e.Message != "100% of it" || e.InvolvedObject.UID != "u" {
			t.Fatalf("event %+v", e)
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

// TestAnEventIsShortWhateverIsInIt: a pod's spec may say a megabyte that an error
// repeats.
func TestAnEventIsShortWhateverIsInIt(t *testing.T) {
	r := New(Config{NodeName: "n"}, Deps{})
	r.Pod(testPod(), v1.EventTypeWarning, "InspectFailed", strings.Repeat("é", 1<<20))
	if got := r.early[0].message; len(got) > mostMessage+8 || !utf8.ValidString(got) || !strings.HasSuffix(got, " …") {
		t.Errorf("an event of %d bytes, which ends with %q", len(got), got[len(got)-8:])
	}
	r.Pod(testPod(), v1.EventTypeWarning, "InspectFailed", "whole")
	if got := r.early[1].message; got != "whole" {
		t.Errorf("a short one: %q", got)
	}
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

func TestEventsWaitForAQuietMomentInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapiserver.New(fakeapiserver.Config{Seed: 1})
		defer server.Close()
		busy := idle.New()
		r := New(Config{NodeName: "n"}, Deps{Client: server.Client(), WaitIdle: busy.WaitIdle})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(time.Millisecond)
		end := busy.Begin()
		began := metav1.Now()
		r.Container(testPod(), "c", v1.EventTypeNormal, "Pulled", "first")
		time.Sleep(10 * time.Millisecond)
		r.Container(testPod(), "c", v1.EventTypeNormal, "Created", "second")
		time.Sleep(time.Second)
		if n := len(server.Events()); n != 0 {
			t.Errorf("%d events were sent while the node was busy", n)
		}
		end()
		time.Sleep(100 * time.Millisecond)
		got := server.Writes()
		if len(got) != 2 || got[0].New.(*v1.Event).Reason != "Pulled" || got[1].New.(*v1.Event).Reason != "Created" {
			t.Fatalf("%d events were sent in the quiet moment: %+v", len(got), got)
		}
		if at := got[0].New.(*v1.Event).FirstTimestamp; at.Unix() != began.Unix() {
			t.Errorf("it is said to be of %v, and was of %v", at, began)
		}
		defer busy.Begin()()
		r.Container(testPod(), "c", v1.EventTypeNormal, "Started", "third")
		time.Sleep(mostHeld + 100*time.Millisecond)
		if n := len(server.Events()); n != 3 {
			t.Errorf("%d events after as long as one waits", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	})
}
