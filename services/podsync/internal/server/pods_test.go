package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	v1 "k8s.io/api/core/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

func TestDesiredPodsCarryTheStatusOfWhoeverOwnsIt(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		static := runningPod()
		static.Pod = static.Pod.DeepCopy()
		static.Pod.UID, static.Static = "v", true
		r.pods.Set(static)
		resp, err := r.client.ListDesiredPods(t.Context(), &podsyncv1.ListDesiredPodsRequest{})
		if err != nil || len(resp.GetPods()) != 2 {
			t.Fatalf("%d pods, error %v", len(resp.GetPods()), err)
		}
		var api, own v1.Pod
		if err := errors.Join(api.Unmarshal(resp.GetPods()[0]), own.Unmarshal(resp.GetPods()[1])); err != nil {
			t.Fatal(err)
		}
		if api.Status.Message != "as the apiserver has it" || own.Status.Phase != v1.PodRunning {
			t.Fatalf("status of the apiserver's pod %+v, of the static one %+v", api.Status, own.Status)
		}
		if seen := time.Now().UTC().Format(time.RFC3339Nano); len(api.Annotations) != 2 || api.Annotations["kubernetes.io/config.source"] != "api" || api.Annotations["kubernetes.io/config.seen"] != seen {
			t.Errorf("the apiserver's pod came from %v, want api at %s", api.Annotations, seen)
		}
		if shown, _ := r.pods.Get("u"); len(shown.Pod.Annotations) != 0 || len(own.Annotations) != 0 {
			t.Errorf("annotations of the pods themselves: %v %v", shown.Pod.Annotations, own.Annotations)
		}
	})
}

func TestDesiredPodsThatTheCallerHasAreNotSentAgain(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		list := func(known *podsyncv1.ListDesiredPodsResponse) *podsyncv1.ListDesiredPodsResponse {
			t.Helper()
			resp, err := r.client.ListDesiredPods(t.Context(), &podsyncv1.ListDesiredPodsRequest{KnownEpoch: known.GetEpoch(), KnownRevision: known.GetRevision()})
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		none := list(nil)
		known := r.state
		if !none.GetPartial() {
			t.Error("what was just started has all its pods")
		}
		r.state = RuntimeState{SourcesReady: time.Now(), LastRelist: time.Now()}
		if list(none).GetPartial() {
			t.Error("it has seen all, and says that there may be others")
		}
		r.state = known
		if none.GetUnchanged() || none.GetEpoch() != 7 || none.GetRevision() == 0 {
			t.Fatalf("who knows nothing gets %v", none)
		}
		if again := list(none); !again.GetUnchanged() {
			t.Fatalf("no pods and still none: %v", again)
		}
		r.addRunning()
		one := list(none)
		if one.GetUnchanged() || len(one.GetPods()) != 1 {
			t.Fatalf("a new pod: %v", one)
		}
		if again := list(one); !again.GetUnchanged() || len(again.GetPods()) != 0 {
			t.Fatalf("the same pod: %v", again)
		}
		r.pods.Set(runningPod())
		if changed := list(one); changed.GetUnchanged() || len(changed.GetPods()) != 1 {
			t.Fatalf("a changed pod: %v", changed)
		}
		one.Epoch++
		if other := list(one); other.GetUnchanged() {
			t.Fatal("the list of another epoch is taken for this one's")
		}
		now := list(nil)
		r.pods.Remove(runningPod().Pod.UID)
		if gone := list(now); gone.GetUnchanged() || len(gone.GetPods()) != 0 {
			t.Fatalf("a pod that is gone: %v", gone)
		}
	})
}

func TestThePodsAPISendsWhatIsThenThatItIsAllThenChanges(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.addRunning()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.podsAPI.WatchPods(ctx, &podsapi.WatchPodsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		next := func(want podsapi.EventType) v1.Pod {
			t.Helper()
			e, err := stream.Recv()
			if err != nil || e.GetType() != want {
				t.Fatalf("event %v, error %v; want %v", e, err, want)
			}
			var pod v1.Pod
			if err := pod.Unmarshal(e.GetPod()); err != nil {
				t.Fatal(err)
			}
			return pod
		}
		if pod := next(podsapi.EventType_ADDED); pod.Status.Phase != v1.PodRunning {
			t.Fatalf("status %+v is not podsync's own", pod.Status)
		}
		next(podsapi.EventType_INITIAL_SYNC_COMPLETE)
		r.pods.Set(runningPod())
		next(podsapi.EventType_MODIFIED)
		r.pods.Remove("u")
		if pod := next(podsapi.EventType_DELETED); pod.UID != "u" || pod.Name != "p" || pod.Namespace != "ns" {
			t.Fatalf("deleted %+v", pod)
		}
		_, err = r.podsAPI.GetPod(t.Context(), &podsapi.GetPodRequest{PodUID: "u"})
		wantCode(t, err, codes.NotFound, `"u"`)
	})
}
