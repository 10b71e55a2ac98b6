package worker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestANodesAddressOfAnotherFamilyThanThePodsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		for _, tc := range []struct {
			ip   string
			want int
		}{{"192.0.2.7", 0}, {"2001:db8::1", 1}, {"2001:db8::2", 1}, {"192.0.2.1", 2}} {
			r.hostIPs.Store(&[]string{tc.ip})
			r.reg.Recheck()
			r.until("the status has "+tc.ip, time.Minute, func() bool { return r.status(pod.UID).HostIP == tc.ip })
			got := r.eventsWith("HostIPsIPFamilyMismatch")
			if len(got) != tc.want {
				t.Fatalf("with %s: %q, want %d events", tc.ip, got, tc.want)
			}
			if n := len(got); n > 0 && (!strings.Contains(got[0], "Warning") || !strings.Contains(got[0], "192.0.2.7") || !strings.Contains(got[0], "2001:db8::1") || !strings.Contains(got[0], "--node-ip")) {
				t.Errorf("it says %q", got)
			}
		}
	})
}

func TestAnUpdateThatNeedsWhatTheNodeLacksIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1", "app:2", "app:3"}})
		r.unmet = func(old, now *v1.Pod) ([]string, error) {
			switch was, is := old.Spec.Containers[0].Image, now.Spec.Containers[0].Image; {
			case was == "app:1" && is == "app:2":
				return []string{"One", "Two"}, nil
			case was == "app:2" && is == "app:3":
				return nil, errors.New("nobody knows")
			}
			return nil, nil
		}
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		for _, tc := range []struct {
			image, annotation string
			restarts          int32
			want              string
		}{
			{"app:1", "", 0, ""},
			{"app:1", "changed", 0, ""}, // an annotation needs nothing
			{"app:2", "changed", 1, "Pod requires node features that are not available: One, Two"},
			{"app:3", "changed", 2, "nobody knows"},
		} {
			before := len(r.eventsWith("FailedNodeDeclaredFeaturesCheck"))
			now := pod.DeepCopy()
			now.Spec.Containers[0].Image = tc.image
			now.Annotations = map[string]string{"a": tc.annotation}
			r.reg.Set(now, "api")
			r.until("it runs", 10*time.Minute, func() bool {
				st := r.status(pod.UID)
				return isReady(st) && st.ContainerStatuses[0].RestartCount == tc.restarts
			})
			got := r.eventsWith("FailedNodeDeclaredFeaturesCheck")[before:]
			if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], "Warning") || !strings.HasSuffix(got[0], tc.want)) {
				t.Errorf("with %s: %q, want %q", tc.image, got, tc.want)
			}
		}
	})
}

func TestADeadContainerThatCannotBeRemovedIsToldOnTheNode(t *testing.T) {
	for _, tc := range []struct {
		name  string
		err   error
		times int32 // that the removal fails
		want  int
	}{
		{"once", status.Error(codes.Unknown, "device is busy"), 1, 0},
		{"again and again", status.Error(codes.Unknown, "device is busy"), 4, 1},
		{"the runtime is away", status.Error(codes.Unavailable, "connection error: refused"), 4, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failed atomic.Int32
				r := newRig(t, fakecri.Config{
					Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: time.Second}}}},
					Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
						if m != "RemoveContainer" || failed.Load() >= tc.times {
							return fakecri.Fault{}
						}
						failed.Add(1)
						return fakecri.Fault{Err: tc.err}
					},
				})
				r.reg.Ready("api")
				pod := newPod("p", v1.Container{Image: "app:1"})
				r.reg.Set(pod, "api")
				r.until("removals failed", time.Hour, func() bool { return failed.Load() == tc.times })
				r.until("dead containers go", time.Hour, func() bool {
					return len(r.rt.Snapshot().Containers) <= 3 && r.status(pod.UID).ContainerStatuses[0].RestartCount > 3
				})
				got := r.eventsWith("ContainerGCFailed")
				if len(got) != tc.want {
					t.Fatalf("events %q, want %d", got, tc.want)
				}
				if tc.want > 0 && (!strings.HasPrefix(got[0], "node Warning") || !strings.Contains(got[0], "device is busy") || !strings.Contains(got[0], "ns/p")) {
					t.Errorf("it says %q", got)
				}
			})
		})
	}
}

func TestEachBackOffOfAContainerIsToldThoughItWasNotSeenToRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{})
		_, w := newHeld(r.reg, "uid-p", 1)
		w.state.Pod = newPod("p", v1.Container{Image: "app:1"})
		waits := func(reason, last string) v1.PodStatus {
			st := v1.ContainerStatus{Name: "c0", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
			if last != "" {
				st.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ContainerID: last}
			}
			return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{st}}
		}
		old, want := waits("ContainerCreating", ""), 0
		for _, now := range []struct {
			st  v1.PodStatus
			one int
		}{
			{waits("CrashLoopBackOff", "1"), 1}, {waits("CrashLoopBackOff", "1"), 0}, {waits("CrashLoopBackOff", "2"), 1},
			{waits("ImagePullBackOff", "2"), 2}, {waits("ImagePullBackOff", "2"), 0},
		} {
			w.transitions(&old, &now.st)
			if want += now.one; len(r.e.said()) != want {
				t.Fatalf("%q, want %d events", r.e.said(), want)
			}
			old = now.st
		}
	})
}
