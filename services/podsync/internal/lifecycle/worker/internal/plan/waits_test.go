package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func failing(key podstate.Key, f Failure) func(*world) {
	return func(w *world) {
		f.At, f.Count = w.s.Now, 1
		w.s.Failures[key] = f
	}
}

// running settles the pod first, so that its containers run.
func running(edit func(*world)) func(*world) {
	return func(w *world) {
		w.settle(time.Minute)
		edit(w)
	}
}

func withVolumes(names ...string) *v1.Pod {
	pod := testPod(v1.RestartPolicyAlways, "a")
	for _, name := range names {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name})
	}
	return pod
}

func failingVolume(name, message string, cause podstate.VolumeCause) func(*world) {
	return func(w *world) {
		a := podstate.Action{Volumes: []string{"", name}}
		w.s.Volumes.Ended(w.s.Pod, a, map[string]Failure{name: {Reason: "FailedMount", Message: message, Volume: cause, At: w.s.Now}}, nil)
	}
}

func TestWhatAPodWaitsForIsNamedWithWhatToDo(t *testing.T) {
	pull := podstate.Key{Kind: podstate.PullImage, Object: "a"}
	for name, c := range map[string]struct {
		pod                          *v1.Pod
		state                        func(*world)
		kind, object, reason, advice string
	}{
		"a wrong image name": {
			state: failing(pull, Failure{Reason: "ErrImagePull", Message: `registry/x:1: not found`}),
			kind:  "image", object: "image-a", reason: "not found", advice: "the registry does not have it",
		},
		"a registry that is away": {
			state: failing(pull, Failure{Reason: "ErrImagePull", Message: "dial tcp 10.0.0.1:443: connect: connection refused"}),
			kind:  "image", object: "image-a", reason: "connection refused", advice: "can be reached from this node",
		},
		"credentials that are missing": {
			state: failing(pull, Failure{Reason: "ErrImagePull", Message: "pull access denied, authorization failed"}),
			kind:  "image", object: "image-a", advice: "pull secrets",
		},
		"an image that may not be pulled": {
			state: failing(pull, Failure{Reason: "ErrImageNeverPull", Message: "not present"}),
			kind:  "image", object: "image-a", advice: "imagePullPolicy",
		},
		"a disk that hangs while the node ends it": {
			state: running(func(w *world) {
				key := podstate.Key{Kind: podstate.KeepStop}
				w.s.Stop, w.s.StopUnkept = &podstate.Stop{Reason: "Evicted"}, true
				w.s.InFlight[key] = podstate.Action{Key: key}
			}),
			kind: "termination", reason: "is being written down", advice: "dmesg",
		},
		"a disk that hangs while its files are removed": {
			state: running(func(w *world) {
				w.s.Removed, w.s.Cleaned.API = true, true
				w.settle(time.Minute)
				w.s.Cleaned.Directories = false
				key := podstate.Key{Kind: podstate.RemoveDirectories}
				w.s.InFlight[key] = podstate.Action{Key: key}
			}),
			kind: "termination", reason: "directory and its logs are being removed", advice: "dmesg",
		},
		"a start that waits for a larger cgroup": {
			state: func(w *world) {
				w.s.Resize.Unfinished = true
				key := podstate.Key{Kind: podstate.RaiseCgroup}
				w.s.InFlight[key] = podstate.Action{Key: key}
			},
			kind: "resize", reason: "what is to start waits for that", advice: "runtime's log",
		},
		"a container whose resize hangs": {
			state: running(func(w *world) {
				key := podstate.Key{Kind: podstate.ResizeContainer, Object: w.newest("a").ID}
				w.s.InFlight[key] = podstate.Action{Key: key, ID: key.Object, Container: "a"}
			}),
			kind: "resize", reason: "container a is given what it is allocated", advice: "runtime's log",
		},
		"a cgroup that does not shrink": {
			state: running(func(w *world) {
				key := podstate.Key{Kind: podstate.FitCgroup}
				w.s.InFlight[key] = podstate.Action{Key: key}
			}),
			kind: "resize", reason: "the pod's cgroup shrinks", advice: "runtime's log",
		},
		"another container that has not ended": {
			pod: testPod(v1.RestartPolicyOnFailure, "a", "b", "c"),
			state: running(func(w *world) {
				w.end(w.newest("a"), 0)
			}),
			kind: "container", object: "a", reason: "container a has ended with exit code 0, and its policy starts it no more; the pod is not Ready since then, and ends when b has ended, and 1 more", advice: "make it a sidecar",
		},
		"another container, after one that failed": {
			pod: testPod(v1.RestartPolicyNever, "a", "b"),
			state: running(func(w *world) {
				w.end(w.newest("b"), 127)
			}),
			kind: "container", object: "b", reason: "container b has ended with exit code 127, and its policy starts it no more; the pod is not Ready since then, and ends when a has ended", advice: "check command and args",
		},
		"a pull that is under way again": {
			state: func(w *world) {
				failing(pull, Failure{Reason: "ErrImagePull", Message: "i/o timeout"})(w)
				w.s.InFlight[pull] = podstate.Action{Key: pull, Container: "a"}
				w.s.Now = w.s.Now.Add(time.Hour)
			},
			kind: "image", object: "image-a", reason: "(try 2); the last try failed: i/o timeout", advice: "can be reached",
		},
		"a secret that is missing": {
			pod:   withVolumes("v"),
			state: failingVolume("v", `MountVolume.SetUp failed for volume "v" : secret "s" not found`, podstate.VolumeObjectMissing),
			kind:  "volume", object: "v", reason: `secret "s" not found`, advice: "create what the error names",
		},
		"a volume that is tried again": {
			pod: withVolumes("v", "w"),
			state: func(w *world) {
				failingVolume("v", `MountVolume.SetUp failed for volume "v" : secret "s" not found`, podstate.VolumeObjectMissing)(w)
				key := podstate.Key{Kind: podstate.SetupVolumes}
				w.s.InFlight[key] = podstate.Action{Key: key, Volumes: []string{"", "v"}}
			},
			kind: "volume", object: "v", reason: `(try 2); the last try failed: MountVolume.SetUp failed for volume "v"`, advice: "create what the error names",
		},
		"all that the volumes lie in": {
			pod:   withVolumes("v", "w"),
			state: failingVolume("", "mkdir: no space left on device", podstate.VolumeUnknown),
			kind:  "volume", reason: "no space left", advice: "make room",
		},
		"volumes that take long": {
			state: func(w *world) {
				w.s.InFlight[podstate.Key{Kind: podstate.SetupVolumes}] = podstate.Action{Key: podstate.Key{Kind: podstate.SetupVolumes}, Volumes: []string{""}}
			},
			kind: "volume", reason: "being set up", advice: "behind the volume",
		},
		"a sandbox whose network fails": {
			state: failing(podstate.Key{Kind: podstate.MakeSandbox}, Failure{Message: "failed to setup network: cni plugin not initialized"}),
			kind:  "sandbox", reason: "cni plugin", advice: "/etc/cni/net.d",
		},
		"a network that is not taken down": {
			state: running(func(w *world) {
				w.s.Pod = w.s.Pod.DeepCopy()
				w.s.Pod.DeletionTimestamp, w.s.Pod.DeletionGracePeriodSeconds = &metav1.Time{Time: w.s.Now}, new(int64)
				w.end(w.newest("a"), 0)
				failing(podstate.Key{Kind: podstate.StopSandbox, Object: w.s.Observed.Sandboxes[0].ID}, Failure{Message: `failed to destroy network for sandbox "1": plugin type="calico" failed (delete)`})(w)
			}),
			kind: "sandbox", reason: "failed (delete)", advice: "/etc/cni/net.d",
		},
		"a former sandbox whose network hangs": {
			state: running(func(w *world) {
				w.s.Observed.Sandboxes[0].Ready = false
				w.end(w.newest("a"), 255)
				key := podstate.Key{Kind: podstate.StopSandbox, Object: w.s.Observed.Sandboxes[0].ID}
				w.s.InFlight[key] = podstate.Action{Key: key, ID: key.Object}
			}),
			kind: "sandbox", reason: "the sandbox before is stopped", advice: "CNI plugin",
		},
		"a network that is not ready": {
			state: func(w *world) { w.s.Node.NetworkReady, w.s.Node.NetworkMessage = false, "cni plugin not initialized" },
			kind:  "network", reason: "cni plugin not initialized", advice: "CNI",
		},
		"a runtime that is away": {
			state: failing(pull, Failure{Message: "connection refused", Away: true}),
			kind:  "runtime", object: "image-a", reason: "connection refused", advice: "start the container runtime",
		},
		"a command that is not there": {
			state: func(w *world) {
				w.fail = func(a podstate.Action) *Failure {
					if a.Kind == podstate.StartContainer {
						return &Failure{Reason: "RunContainerError", Message: `exec: "x": executable file not found in $PATH`}
					}
					return nil
				}
				for range 4 {
					w.step()
				}
			},
			kind: "container", object: "a", reason: "executable file not found", advice: "check command and args",
		},
		"a container that crashes": {
			state: func(w *world) {
				w.exits["a"] = []int32{3, 3, 3, 3, 3, 3, 3, 3}
				w.settle(15 * time.Second)
			},
			kind: "backoff", object: "a", reason: "exit code 3", advice: "polylet logs --previous",
		},
		"a failing init container": {
			pod: withInit(testPod(v1.RestartPolicyAlways, "a"), "i"),
			state: func(w *world) {
				w.exits["i"] = []int32{7, 7, 7, 7, 7, 7, 7, 7}
				w.settle(15 * time.Second)
			},
			kind: "backoff", object: "i", reason: "init container i ended with exit code 7", advice: "last words",
		},
		"an init container that runs": {
			pod: withInit(testPod(v1.RestartPolicyAlways, "a"), "i"),
			state: func(w *world) {
				for range 4 {
					w.step()
				}
			},
			kind: "container", object: "i", reason: "init container i runs", advice: "polylet logs",
		},
		"a probe that was not tried": {
			pod:   withReadiness(testPod(v1.RestartPolicyAlways, "a")),
			state: running(func(*world) {}),
			kind:  "probe", object: "a", reason: "readiness probe (HTTP GET /ok on port 80) has not succeeded", advice: "polylet probes",
		},
		"a probe whose path has a query, which may be secret": {
			pod: func() *v1.Pod {
				p := withReadiness(testPod(v1.RestartPolicyAlways, "a"))
				p.Spec.Containers[0].ReadinessProbe.HTTPGet.Path = "/ok?token=hunter2"
				return p
			}(),
			state: running(func(*world) {}),
			kind:  "probe", object: "a", reason: "readiness probe (HTTP GET /ok on port 80) has not succeeded", advice: "polylet probes",
		},
		"a probe of a port that the container does not name": {
			pod: func() *v1.Pod {
				p := withReadiness(testPod(v1.RestartPolicyAlways, "a"))
				p.Spec.Containers[0].ReadinessProbe.HTTPGet.Port = intstr.FromString("web")
				p.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 80}}
				return p
			}(),
			state: running(func(*world) {}),
			kind:  "probe", object: "a", reason: "on port web) has not succeeded", advice: `none is called "web"`,
		},
		"a probe of a port by its name": {
			pod: func() *v1.Pod {
				p := withReadiness(testPod(v1.RestartPolicyAlways, "a"))
				p.Spec.Containers[0].ReadinessProbe.HTTPGet.Port = intstr.FromString("http")
				p.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 80}}
				return p
			}(),
			state: running(func(*world) {}),
			kind:  "probe", object: "a", reason: "on port http) has not succeeded", advice: "what the container answers",
		},
		"a probe that fails": {
			pod: withReadiness(testPod(v1.RestartPolicyAlways, "a")),
			state: running(func(w *world) {
				w.s.Probes[podstate.ProbeKey{Container: "a", Type: podstate.Readiness}] = podstate.ProbeResult{ContainerID: w.newest("a").ID, Message: "HTTP probe failed with statuscode: 500"}
			}),
			kind: "probe", object: "a", reason: "statuscode: 500", advice: "what the container answers",
		},
		"a readiness gate": {
			pod: func() *v1.Pod {
				p := testPod(v1.RestartPolicyAlways, "a")
				p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb"}}
				return p
			}(),
			state: running(func(*world) {}),
			kind:  "gate", reason: `"lb"`, advice: "controller",
		},
		"a container's end": {
			state: running(func(w *world) {
				w.s.Pod = w.s.Pod.DeepCopy()
				w.s.Pod.DeletionTimestamp = &metav1.Time{Time: w.s.Now}
				w.s.Pod.DeletionGracePeriodSeconds = new(int64)
				*w.s.Pod.DeletionGracePeriodSeconds = 30
			}),
			kind: "termination", object: "a", reason: "30 s", advice: "killed when the period is over; one that is there even then may wait in the kernel: look whether the servers of its volumes answer",
		},
	} {
		pod := c.pod
		if pod == nil {
			pod = testPod(v1.RestartPolicyAlways, "a")
		}
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].Image = "image-" + pod.Spec.Containers[i].Name
		}
		w := newWorld(pod)
		c.state(w)
		out := Plan(w.s)
		found := false
		for _, got := range out.Waits {
			found = found || got.Kind == c.kind && got.Object == c.object && strings.Contains(got.Reason, c.reason) && strings.Contains(got.Advice, c.advice)
		}
		if !found {
			t.Errorf("%s: no wait of kind %s, object %q, reason %q, advice %q among %+v", name, c.kind, c.object, c.reason, c.advice, out.Waits)
		}
	}
}

func withReadiness(pod *v1.Pod) *v1.Pod {
	pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/ok", Port: intstr.FromInt32(80)}}}
	return pod
}

func TestAPodThatRunsAndIsReadyWaitsForNothing(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a", "b"))
	w.settle(time.Minute)
	if out := Plan(w.s); len(out.Waits) != 0 {
		t.Errorf("%+v", out.Waits)
	}
}

func TestHowAContainerEndedSaysWhatToDo(t *testing.T) {
	for want, c := range map[string]podstate.Container{
		"limits.memory":          {Reason: "OOMKilled", ExitCode: 137},
		"should keep running":    {ExitCode: 0},
		"not found in the image": {ExitCode: 127},
		"liveness probe":         {ExitCode: 137},
		"last words":             {ExitCode: 1},
	} {
		if got := exitAdvice(&c); !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

func TestAPodWaitsForEachVolumeSinceItFirstFailed(t *testing.T) {
	w := newWorld(withVolumes("first", "second"))
	fails := map[string]bool{"first": true}
	w.volumes = func(a podstate.Action) map[string]Failure {
		out := map[string]Failure{}
		for _, name := range a.Volumes {
			if fails[name] {
				out[name] = Failure{Reason: "FailedMount", Message: name + " not found", At: w.s.Now}
			}
		}
		return out
	}
	plan := func() map[string]time.Time {
		out := Plan(w.s)
		w.s.Waits = out.Waits
		for _, a := range out.Actions {
			w.do(a)
		}
		since := map[string]time.Time{}
		for _, wait := range out.Waits {
			if wait.Kind == "volume" && wait.Object != "" {
				since[wait.Object] = wait.Since
			}
		}
		return since
	}
	plan()
	w.s.Now = start.Add(100 * time.Millisecond)
	plan() // it failed
	w.s.Now, fails["second"] = start.Add(time.Minute), true
	w.s.Volumes.Version++
	plan()
	w.s.Now = start.Add(time.Minute + 100*time.Millisecond)
	if since := plan(); len(since) != 2 || !since["first"].Equal(start.Add(100*time.Millisecond)) || !since["second"].Equal(w.s.Now) {
		t.Errorf("%v", since)
	}
}

// It may well exit with 0 when it is asked to end.
func TestAContainerThatAProbeHasEndedDidNotEndByItself(t *testing.T) {
	for name, c := range map[string]struct {
		kind podstate.ProbeType
		want string
	}{"liveness": {podstate.Liveness, "liveness probe"}, "startup": {podstate.Startup, "startup probe"}} {
		pod := testPod(v1.RestartPolicyAlways, "a")
		pod.Spec.Containers[0].LivenessProbe, pod.Spec.Containers[0].StartupProbe = &v1.Probe{}, &v1.Probe{}
		w := newWorld(pod)
		w.killCode = 0
		for range 2 {
			w.settle(5 * time.Minute)
			w.s.Probes[podstate.ProbeKey{Container: "a", Type: c.kind}] = podstate.ProbeResult{ContainerID: w.newest("a").ID}
			w.settle(5 * time.Second)
		}
		if at := slices.IndexFunc(w.out.Waits, func(wait podstate.Wait) bool { return wait.Kind == "backoff" }); at < 0 ||
			!strings.Contains(w.out.Waits[at].Reason, "because its "+c.want+" failed") || !strings.Contains(w.out.Waits[at].Advice, c.want) {
			t.Errorf("%s: it waits for %+v", name, w.out.Waits)
		}
	}
	pod := testPod(v1.RestartPolicyAlways, "a")
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
	w := newWorld(pod)
	for range 2 {
		w.settle(5 * time.Minute)
		w.newest("a").Hook = podstate.HookFailed
		w.settle(5 * time.Second)
	}
	if len(w.out.Waits) == 0 || !strings.Contains(w.out.Waits[0].Reason, "postStart hook failed") || !strings.Contains(w.out.Waits[0].Advice, "postStart") {
		t.Errorf("after a postStart hook it waits for %+v", w.out.Waits)
	}
}
