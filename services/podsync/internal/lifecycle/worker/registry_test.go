package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

var latency = map[string]time.Duration{
	"RunPodSandbox": 90 * time.Millisecond, "CreateContainer": 5 * time.Millisecond, "StartContainer": 40 * time.Millisecond,
}

func TestAPodIsReadyAsSoonAsTheRuntimeHasStartedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Latency: latency})
		r.reg.Ready("api")
		synctest.Wait()
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		took := r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		if took > 136*time.Millisecond {
			t.Errorf("took %v, the runtime's own work takes 135ms", took)
		}
	})
}

func TestPullVolumesAndSandboxRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{
			Registry: map[string]fakecri.RemoteImage{"app:1": {PullDelay: 100 * time.Millisecond}}, Latency: latency,
		})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		if took := r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) }); took > 146*time.Millisecond {
			t.Errorf("took %v, want the pull's 100ms and the start's 45ms", took)
		}
	})
}

func TestAnImageThatChangesWhileThePullRunsIsTheOneThatStarts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		first fakecri.RemoteImage
		limit time.Duration
	}{
		{"the first pull goes well", fakecri.RemoteImage{PullDelay: 5 * time.Second}, 6 * time.Second},
		{"the first pull fails, which holds the second up no longer", fakecri.RemoteImage{PullDelay: 5 * time.Second, Err: errors.New("no such layer")}, 6 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, fakecri.Config{
					Registry: map[string]fakecri.RemoteImage{"app:1": tc.first, "app:2": {PullDelay: 100 * time.Millisecond}}, Latency: latency,
				})
				r.reg.Ready("api")
				pod := newPod("p", v1.Container{Image: "app:1"})
				r.reg.Set(pod, "api")
				time.Sleep(time.Second)
				pod = pod.DeepCopy()
				pod.Spec.Containers[0].Image = "app:2"
				r.reg.Set(pod, "api")
				r.until("ready", tc.limit, func() bool { return isReady(r.status(pod.UID)) })
				for _, c := range r.rt.Snapshot().Containers {
					if got := c.Config.GetImage().GetUserSpecifiedImage(); got != "app:2" || !slices.Contains(tagsOf(r.rt.Snapshot(), c.ImageID), "docker.io/library/app:2") {
						t.Errorf("a container for %s was started with image %v", got, tagsOf(r.rt.Snapshot(), c.ImageID))
					}
				}
			})
		})
	}
}

func tagsOf(s fakecri.Snapshot, id string) []string {
	for _, img := range s.Images {
		if img.ID == id {
			return img.Tags
		}
	}
	return nil
}

func TestAnExitedContainerIsStartedAgainAtOnceThenWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": fakecri.Exits(time.Second, 1)}})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		count := func(n int32) func() bool {
			return func() bool {
				st := r.status(pod.UID)
				return len(st.ContainerStatuses) == 1 && st.ContainerStatuses[0].RestartCount == n && st.ContainerStatuses[0].State.Running != nil
			}
		}
		r.until("running", time.Second, count(0))
		if took := r.until("restarted", 10*time.Second, count(1)); took > 1010*time.Millisecond {
			t.Errorf("the first restart came %v after the start, the exit 1s", took)
		}
		if took := r.until("restarted twice", time.Minute, count(2)); took < 11*time.Second || took > 11010*time.Millisecond {
			t.Errorf("the second restart came after %v, want 11s", took)
		}
		if !slices.Contains(r.e.said(), "c0 Warning BackOff Back-off restarting failed container c0 in pod p_ns(uid-p)") {
			t.Errorf("no BackOff event in %q", r.e.said())
		}
	})
}

func TestDeletionGoesToItsEndWithoutATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}, OnTerm: fakecri.Term{After: 100 * time.Millisecond}}}})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		gone := pod.DeepCopy()
		now := metav1.Now()
		gone.DeletionTimestamp, gone.DeletionGracePeriodSeconds = &now, pod.Spec.TerminationGracePeriodSeconds
		r.reg.Set(gone, "api")
		if took := r.until("finished", time.Minute, func() bool { return r.e.isFinished(pod.UID) }); took > 105*time.Millisecond {
			t.Errorf("took %v, the container 100ms", took)
		}
		r.reg.Remove(pod.UID, "api")
		r.until("cleaned", time.Minute, func() bool { return len(r.pods.List()) == 0 && len(r.rt.Snapshot().Sandboxes) == 0 })
		if len(r.e.volumes) != 0 {
			t.Error("volumes are left")
		}
	})
}

func TestARestartOfPodsyncChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		r.reg.Ready("api")
		pod, orphan := newPod("p", v1.Container{Image: "app:1"}), newPod("o", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		r.reg.Set(orphan, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) && isReady(r.status(orphan.UID)) })
		before := len(r.rt.History())
		r.stop()
		r.start()
		time.Sleep(time.Hour)
		if now := r.rt.History(); len(now) != before {
			t.Errorf("before the sources were ready: %+v", now[before:])
		}
		known := pod.DeepCopy()
		known.Status = r.status(pod.UID)
		r.reg.Set(known, "api")
		r.reg.Ready("api")
		r.until("orphan gone", time.Minute, func() bool { return len(r.rt.Snapshot().Sandboxes) == 1 })
		for _, tr := range r.rt.History()[before:] {
			if tr.PodUID != string(orphan.UID) {
				t.Errorf("something happened to a pod that is wanted: %+v", tr)
			}
		}
		if !isReady(r.status(pod.UID)) {
			t.Error("the pod is not ready any more")
		}
	})
}

func TestALostAnswerMakesNoSecondContainer(t *testing.T) {
	for _, method := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lost := 0
				r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
					if m == method && lost < 2 {
						lost++
						return fakecri.Fault{After: true}
					}
					return fakecri.Fault{}
				}})
				r.reg.Ready("api")
				pod := newPod("p", v1.Container{Image: "app:1"})
				r.reg.Set(pod, "api")
				r.until("ready", 20*time.Second, func() bool { return isReady(r.status(pod.UID)) })
				if s := r.rt.Snapshot(); len(s.Containers) != 1 || len(s.Sandboxes) != 1 {
					t.Errorf("%d sandboxes, %d containers", len(s.Sandboxes), len(s.Containers))
				}
			})
		})
	}
}

func TestAHungCallHoldsOnlyItsOwnPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Faults: func(_ context.Context, m string, req any) fakecri.Fault {
			if c, ok := req.(*runtimeapi.RunPodSandboxRequest); ok && c.GetConfig().GetMetadata().GetName() == "hung" {
				return fakecri.Fault{Hang: true}
			}
			return fakecri.Fault{}
		}})
		r.reg.Ready("api")
		r.reg.Set(newPod("hung", v1.Container{Image: "app:1"}), "api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		if took := r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) }); took > 10*time.Millisecond {
			t.Errorf("the other pod took %v", took)
		}
		hung := newPod("hung", v1.Container{Image: "app:1"})
		now := metav1.Now()
		hung.DeletionTimestamp = &now
		r.reg.Set(hung, "api")
		if took := r.until("deleted", time.Minute, func() bool { return r.e.finished[hung.UID] }); took > 10*time.Millisecond {
			t.Errorf("the hung pod's deletion took %v", took)
		}
	})
}

func TestStaticPodsOfOneNameRunOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}, OnTerm: fakecri.Term{After: 5 * time.Second}}}})
		r.reg.Ready("api")
		first, second := newPod("p", v1.Container{Image: "app:1"}), newPod("p", v1.Container{Image: "app:1"})
		second.UID = "uid-second"
		r.reg.Set(first, "file")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(first.UID)) })
		r.reg.Remove(first.UID, "file")
		r.reg.Set(second, "file")
		if took := r.until("second ready", time.Minute, func() bool { return isReady(r.status(second.UID)) }); took < 5*time.Second || took > 5100*time.Millisecond {
			t.Errorf("the second one was ready after %v, the first ended after 5s", took)
		}
	})
}

// TestWhatTheRuntimeCannotRemoveKeepsNoStaticPodOut: a container's root filesystem may be
// busy for as long as the machine runs, and the manifest that of a control plane.
func TestWhatTheRuntimeCannotRemoveKeepsNoStaticPodOut(t *testing.T) {
	for name, next := range map[string]types.UID{"another manifest": "uid-second", "the same manifest, back again": "uid-p"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var busy atomic.Bool
				busy.Store(true)
				r := newRig(t, fakecri.Config{
					Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}}},
					Faults: func(_ context.Context, method string, _ any) fakecri.Fault {
						if busy.Load() && strings.HasSuffix(method, "RemoveContainer") {
							return fakecri.Fault{Err: status.Error(codes.Unknown, "device or resource busy")}
						}
						return fakecri.Fault{}
					},
				})
				r.reg.Ready("api")
				first, second := newPod("p", v1.Container{Image: "app:1"}), newPod("p", v1.Container{Image: "app:1"})
				second.UID = next
				r.reg.Set(first, "file")
				r.until("ready", time.Minute, func() bool { return isReady(r.status(first.UID)) })
				before := r.rt.Snapshot().Containers[0].ID
				r.reg.Remove(first.UID, "file")
				r.reg.Set(second, "file")
				runs := func() bool {
					return slices.ContainsFunc(r.rt.Snapshot().Containers, func(c fakecri.ContainerInfo) bool {
						return c.ID != before && c.State == fakecri.Running
					})
				}
				r.until("the second one runs", time.Minute, runs)
				busy.Store(false)
				time.Sleep(time.Minute)
				synctest.Wait()
				if !runs() {
					t.Error("the second one does not go on")
				}
				if n := len(r.rt.Snapshot().Containers); next != first.UID && n != 1 {
					t.Errorf("%d containers are left", n)
				}
			})
		})
	}
}

// TestAPodThatIsBackIsNotTakenForWhatItWasBecauseTheRuntimeIsAway: that its runtime is
// restarted does not tell that it cannot remove anything, and a pod whose container has
// ended well would not run again.
func TestAPodThatIsBackIsNotTakenForWhatItWasBecauseTheRuntimeIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		r := newRig(t, fakecri.Config{
			Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}}},
			Faults: func(_ context.Context, method string, _ any) fakecri.Fault {
				if away.Load() && strings.HasSuffix(method, "RemoveContainer") {
					return fakecri.Fault{Err: status.Error(codes.Unavailable, "connection error: desc = connection refused")}
				}
				return fakecri.Fault{}
			},
		})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		r.reg.Set(pod, "file")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		before := r.rt.Snapshot().Containers[0].ID
		away.Store(true)
		r.reg.Remove(pod.UID, "file")
		r.reg.Set(pod.DeepCopy(), "file")
		time.Sleep(time.Minute)
		away.Store(false)
		r.until("it runs again", time.Minute, func() bool {
			return slices.ContainsFunc(r.rt.Snapshot().Containers, func(c fakecri.ContainerInfo) bool {
				return c.ID != before && c.State == fakecri.Running
			})
		})
	})
}

func TestAPodThatIsTakenBackWhileItsFormerLifeEndsDoesNotComeBack(t *testing.T) {
	for name, before := range map[string]string{"its source had it": "file", "nobody knew it": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}, OnTerm: fakecri.Term{After: 5 * time.Second}}}})
				pod := newPod("p", v1.Container{Image: "app:1"})
				r.reg.Set(pod, "file")
				r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
				if before == "" { // its manifest went while podsync was away
					r.stop()
					r.start()
					r.reg.Ready("api")
				} else {
					r.reg.Ready("api")
					r.reg.Remove(pod.UID, before)
				}
				time.Sleep(time.Second) // it is being ended
				r.reg.Set(pod, "file")
				time.Sleep(500 * time.Millisecond)
				r.reg.Remove(pod.UID, "api") // says nothing of it
				r.reg.Remove(pod.UID, "file")
				r.until("gone", time.Minute, func() bool { return len(r.rt.Snapshot().Sandboxes) == 0 })
				time.Sleep(time.Minute)
				if s := r.rt.Snapshot(); len(s.Sandboxes)+len(s.Containers) > 0 {
					t.Errorf("it runs again though nobody wants it: %+v", s.Containers)
				}
			})
		})
	}
}

func TestAPodThatComesBackWhileItsFormerLifeEndsRunsAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}, OnTerm: fakecri.Term{After: 5 * time.Second}}}})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "file")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		r.reg.Remove(pod.UID, "file")
		r.reg.Set(pod, "http")
		r.reg.Remove(pod.UID, "file") // once more: it is the other source's by now
		time.Sleep(6 * time.Second)
		if s := r.rt.Snapshot(); len(s.Sandboxes) != 1 || s.Sandboxes[0].State != fakecri.Ready {
			t.Errorf("it has %+v", s.Sandboxes)
		}
	})
}

func TestAPodWhoseVolumesFailSaysSoAndGoesOnWhenTheyWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		r.e.setup = func(*v1.Pod) error {
			return errors.New(`MountVolume.SetUp failed for volume "v" : configmap "x" not found`)
		}
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		time.Sleep(time.Minute)
		if !slices.Contains(r.e.said(), ` Warning FailedMount MountVolume.SetUp failed for volume "v" : configmap "x" not found`) {
			t.Errorf("events %q", r.e.said())
		}
		v, _ := r.reg.Explain(pod.UID)
		if len(v.Waits) == 0 || len(v.Timeline) == 0 {
			t.Errorf("explanation %+v", v)
		}
		r.e.mu.Lock()
		r.e.setup = nil
		r.e.mu.Unlock()
		r.reg.ObjectsChanged([]types.UID{pod.UID})
		if took := r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) }); took > 10*time.Millisecond {
			t.Errorf("took %v after the object appeared", took)
		}
	})
}

func TestNothingStartsBeforeTheRuntimeIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		r.stop()
		r.rt.SetDown(true)
		r.start()
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		time.Sleep(time.Hour)
		r.rt.SetDown(false)
		if took := r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) }); took > 2*time.Second {
			t.Errorf("took %v after the runtime came", took)
		}
	})
}

func TestAdmissionThatCannotDecideIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		answer := podstate.Admission{Decision: podstate.AdmissionPending, Message: "the Node is not synced"}
		r.reg.deps.Admit = func(Question) Answer { return Answer{Admission: answer} }
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		time.Sleep(5 * time.Second)
		if n := len(r.rt.Snapshot().Sandboxes); n != 0 {
			t.Fatalf("%d sandboxes before admission", n)
		}
		r.reg.mu.Lock()
		answer = podstate.Admission{Decision: podstate.Rejected, Reason: "OutOfcpu", Message: "too much"}
		r.reg.mu.Unlock()
		r.reg.Recheck()
		r.until("rejected", time.Minute, func() bool { return r.status(pod.UID).Phase == v1.PodFailed })
		if st := r.status(pod.UID); st.Reason != "OutOfcpu" || st.Message != "Pod was rejected: too much" {
			t.Errorf("status %+v", st)
		}
	})
}

func TestAStartedContainerThatCannotBeLookedAtStillGetsItsHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, hooks := 0, 0
		r := newRig(t, fakecri.Config{
			Images: []string{"app:1"},
			Script: func(fakecri.Process) *fakecri.Script {
				return &fakecri.Script{Exec: func(fakecri.ExecCall) fakecri.ExecResult { hooks++; return fakecri.ExecResult{} }}
			},
			Faults: func(_ context.Context, method string, _ any) fakecri.Fault {
				if method == "ContainerStatus" {
					if looks++; looks == 1 {
						return fakecri.Fault{Err: errors.New("not now")}
					}
				}
				return fakecri.Fault{DropEvent: method == "event"}
			},
		})
		r.reg.Ready("api")
		hook := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hook"}}}
		pod := newPod("p", v1.Container{Image: "app:1", Lifecycle: &v1.Lifecycle{PostStart: hook}})
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		if hooks != 1 {
			t.Errorf("the hook ran %d times", hooks)
		}
	})
}

func TestLabelsThatChangeReachTheVolumesOfARunningPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		var seen []string
		r.e.setup = func(pod *v1.Pod) error { seen = append(seen, pod.Labels["a"]); return nil }
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		changed := pod.DeepCopy()
		changed.Labels = map[string]string{"a": "1"}
		r.reg.Set(changed, "api")
		synctest.Wait()
		if !slices.Equal(seen, []string{"", "1"}) {
			t.Errorf("volumes were set up for labels %q", seen)
		}
	})
}
