package sim

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// unless skips the calls of a method that are to be skipped, and lets podsync
// believe that they worked.
func unless(method string, skip func(n int) bool) func(*world, string, any, any, func() error) error {
	n := 0
	return func(_ *world, m string, _, _ any, do func() error) error {
		if m != method {
			return do()
		}
		if n++; skip(n) {
			return nil
		}
		return do()
	}
}

// lateNode lets requests for the Node take longer than those for its pods.
func lateNode(_ *world, req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if strings.Contains(req.URL.Path+req.URL.RawQuery, "node") && !strings.Contains(req.URL.Path, "/pods") {
		time.Sleep(2 * time.Second)
	}
	return next.RoundTrip(req)
}

func always(int) bool { return true }

// changed changes the first pod of a scenario before it is created.
func changed(base func(int64) *scenario, change func(*subject)) func(int64) *scenario {
	return func(seed int64) *scenario {
		s := base(seed)
		change(s.subjects[0])
		return s
	}
}

// deletedWhileAway is a scenario of a pod that is deleted while podsync is away
// for longer than its grace period.
func deletedWhileAway(shape string) func(int64) *scenario {
	return with(with(only(shape, 11*time.Second), 10*time.Second, "podsync is killed, and away", func(w *world) { w.away(time.Minute) }),
		80*time.Second, "wait", func(*world) {})
}

// resizedWhileAway is a scenario of a pod that waits for its sandbox when podsync is
// killed, and is to have more than the node has when podsync is back; then is what
// happens while podsync is away.
func resizedWhileAway(then func(w *world)) func(int64) *scenario {
	return with(with(resizes(), 10*time.Second, "podsync is killed, and away", func(w *world) { w.away(10 * time.Second) }),
		12*time.Second, "resize p0", func(w *world) {
			w.resize(w.scenario.subjects[0], size{90, 64})
			then(w)
		})
}

// noSandboxYet refuses every sandbox until podsync has been away.
func noSandboxYet(_ *world, m string, _, _ any, do func() error) error {
	if m == "RunPodSandbox" && time.Since(start()) < 15*time.Second {
		return status.Error(codes.Unknown, "no network yet")
	}
	return do()
}

// forgetsAllocations takes the checkpoints away of what pods are allocated.
func forgetsAllocations(w *world) {
	w.must(os.Remove(filepath.Join(w.dir, "root", "polylet", "allocations.json")))
	w.must(os.Remove(filepath.Join(w.dir, "root", "allocated_pods_state")))
}

// deletedAgain is a scenario of a pod that takes no signal and is deleted after
// 10 s with 30 s of time, and at some time with a second.
func deletedAgain(at time.Duration) func(int64) *scenario {
	return with(only("stubborn", 10*time.Second), at, "delete p0 with grace 1", func(w *world) { w.remove(w.scenario.subjects[0], 1) })
}

// killedOnFailure is a scenario of a pod of a shape that a probe kills and that
// exits with 0.
func killedOnFailure(shape string) func(int64) *scenario {
	return changed(only(shape, 0), func(s *subject) { s.pod.Spec.RestartPolicy, s.end = v1.RestartPolicyOnFailure, runs })
}

// endsWhileAway is a scenario of a pod whose process takes the signal while podsync,
// which has asked for its end for a failed probe, is away.
func endsWhileAway(shape string) func(int64) *scenario {
	return changed(killedOnFailure(shape), func(s *subject) {
		for name, script := range s.scripts {
			script.OnTerm = fakecri.Term{After: 2 * time.Second}
			s.scripts[name] = script
		}
		grace := int64(30)
		s.pod.Spec.TerminationGracePeriodSeconds = &grace
	})
}

// goneAfter kills podsync a second after it has asked a container to stop, for longer
// than any grace period; it does what it is given when podsync is dead.
func goneAfter(then func(w *world)) func(*world, string, any, any, func() error) error {
	var once sync.Once
	return func(w *world, _ string, req, _ any, do func() error) error {
		if _, stop := req.(*runtimeapi.StopContainerRequest); stop {
			once.Do(func() {
				time.AfterFunc(time.Second, func() {
					w.away(40 * time.Second)
					then(w)
				})
			})
		}
		return do()
	}
}

// ofTheFirst makes all containers from the image of the first.
func ofTheFirst() func(*world, string, any, any, func() error) error {
	first := ""
	return func(_ *world, _ string, req, _ any, do func() error) error {
		if create, ok := req.(*runtimeapi.CreateContainerRequest); ok {
			if first == "" {
				first = create.GetConfig().GetImage().GetImage()
			}
			create.Config.Image.Image = first
		}
		return do()
	}
}

// forgetProbes removes what podsync keeps of probes.
func forgetProbes(w *world) {
	w.must(os.Remove(filepath.Join(w.dir, "root", "polylet", "probe-results.json")))
}

// neverAgain refuses every container but the first of its name.
func neverAgain(_ *world, _ string, req, _ any, do func() error) error {
	if create, ok := req.(*runtimeapi.CreateContainerRequest); ok && create.GetConfig().GetMetadata().GetAttempt() > 0 {
		return status.Error(codes.Unknown, "not now")
	}
	return do()
}

// sidecarsEnd is a scenario of a pod whose container has ended, which is deleted
// while its sidecars, which take no signal, are being stopped, and then deleted
// once more with less time.
func sidecarsEnd() func(int64) *scenario {
	again := func(w *world) { w.remove(w.scenario.subjects[0], 3) }
	return with(changed(only("sidecar of a job", 8*time.Second), func(s *subject) {
		for _, c := range s.pod.Spec.InitContainers {
			s.scripts[c.Name] = fakecri.Script{OnTerm: fakecri.Term{Ignore: true}}
		}
	}), 16*time.Second, "delete p0 with grace 3", again)
}

// image starts a container of a name from an image, in the newest sandbox.
func image(w *world, name, image string, attempt uint32) {
	containers := w.rt.Snapshot().Containers
	old := containers[len(containers)-1]
	config := proto.CloneOf(old.Config)
	config.Metadata.Name, config.Metadata.Attempt = name, attempt
	config.Image.UserSpecifiedImage = image
	made, err := w.rt.Runtime().CreateContainer(context.Background(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: old.SandboxID, Config: config, SandboxConfig: old.Sandbox,
	})
	w.must(err)
	_, err = w.rt.Runtime().StartContainer(context.Background(), &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()})
	w.must(err)
}

// stopAll stops every container as somebody else than podsync would.
func stopAll(w *world, grace int64) {
	for _, c := range w.rt.Snapshot().Containers {
		_, err := w.rt.Runtime().StopContainer(context.Background(), &runtimeapi.StopContainerRequest{ContainerId: c.ID, Timeout: grace})
		w.must(err)
	}
}

// spoils writes something else into a file of the first pod's volume. Nothing of podsync
// goes on meanwhile: it would mend the file before anybody looks.
func spoils(kind, volume, file string) func(*world) {
	return func(w *world) {
		synctest.Wait()
		files, err := filepath.Glob(filepath.Join(w.dir, "root", "pods", "*", "volumes", kind, volume, file))
		w.must(err)
		for _, f := range files {
			w.must(os.WriteFile(f, []byte("spoilt"), 0o600))
		}
	}
}

// spentBy is a scenario of two pods of which the second has room only when the
// first has ended.
func spentBy(first string) func(int64) *scenario {
	return func(seed int64) *scenario {
		s := pair(first, filler)(seed)
		for _, each := range s.subjects {
			each.cpu = 40
			each.pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("40")}}
		}
		s.acts[1].at = 20 * time.Second
		return s
	}
}

func TestEveryBrokenPromiseOfTheLifecycleIsFound(t *testing.T) {
	asksTheJudge(t)
	for _, tc := range []struct {
		name string
		shot sabotage
		want string
	}{
		{"an object that goes while a network is up", sabotage{scenario: only("forever", 10*time.Second), cri: func(w *world, m string, req, _ any, do func() error) error {
			if stop, ok := req.(*runtimeapi.StopPodSandboxRequest); ok {
				return w.rt.KillSandbox(stop.GetPodSandboxId())
			}
			return do()
		}}, "was deleted while the network of 1 of its sandboxes is up"},
		{"a sandbox that is removed before it is stopped", sabotage{scenario: only("forever", 10*time.Second), cri: func(w *world, m string, req, _ any, do func() error) error {
			if stop, ok := req.(*runtimeapi.StopPodSandboxRequest); ok {
				return w.rt.KillSandbox(stop.GetPodSandboxId())
			}
			return do()
		}}, "was removed before it was stopped"},
		{"a sandbox beside the network of one before it", sabotage{
			scenario: with(only("forever", 0), 5*time.Second, "a sandbox dies", func(w *world) { w.killSandbox(0) }), cri: unless("StopPodSandbox", always),
		}, "got another sandbox while the network of 1 before it is up"},
		{"a network that stays", sabotage{
			scenario: only("job", 0), cri: func(w *world, m string, req, _ any, do func() error) error {
				if stop, ok := req.(*runtimeapi.StopPodSandboxRequest); ok {
					return w.rt.KillSandbox(stop.GetPodSandboxId())
				}
				return do()
			},
		}, "is up, though the sandbox does not stand"},
		{"networks that go at the third attempt", sabotage{scenario: with(only("forever", 10*time.Second), 5*time.Second, "CNI DEL fails", func(w *world) { w.rt.FailTeardowns(2) })}, ""},
		{"a sandbox whose process dies alone", sabotage{scenario: with(only("forever", 0), 5*time.Second, "the process of a sandbox dies", func(w *world) { w.killPause(0) })}, ""},
		{"hooks in order", sabotage{scenario: only("hooks in order", 0)}, ""},
		{"a container that does not wait for a hook", sabotage{
			scenario: only("hooks in order", 0), cri: again("StartContainer", func(w *world, _ any) { makesAs(w, "c1", 0) }),
		}, "container c1 of pod p0 was started before the postStart hook of c0 was over"},
		{"a deletion while podsync is away", sabotage{scenario: deletedWhileAway("ends late")}, ""},
		{"a grace period that is over before anybody asked", sabotage{scenario: deletedWhileAway("stubborn"), cri: func(_ *world, _ string, req, _ any, do func() error) error {
			if stop, ok := req.(*runtimeapi.StopContainerRequest); ok {
				stop.Timeout = 2
			}
			return do()
		}}, "because it was deleted, 28s before its grace period ended"},
		{"a preStop hook that is left out", sabotage{
			scenario: with(deletedWhileAway("hooks in order"), 12*time.Second, "somebody stops it", func(w *world) { stopAll(w, 30) }),
		}, "container c0 of pod p0 (StopContainer, TERM) was ended because it was deleted without its preStop hook"},
		{"a kill by a probe, after which the process exits with 0", sabotage{scenario: killedOnFailure("killed by a probe")}, ""},
		{"a kill by a startup probe, after which the process exits with 0", sabotage{scenario: killedOnFailure("killed by its startup probe")}, ""},
		{"a restart that is owed and does not come", sabotage{scenario: killedOnFailure("killed by a probe"), cri: neverAgain}, "has a container that does not run"},
		{"a restart that is owed after a startup probe and does not come", sabotage{scenario: killedOnFailure("killed by its startup probe"), cri: neverAgain}, "has a container that does not run"},
		{"a kill by a probe while podsync is away", sabotage{scenario: endsWhileAway("killed by a probe"), cri: goneAfter(func(*world) {})}, ""},
		{"a kill by a startup probe while podsync is away", sabotage{scenario: endsWhileAway("killed by its startup probe"), cri: goneAfter(func(*world) {})}, ""},
		{"a kill by a probe that podsync has forgotten", sabotage{scenario: endsWhileAway("killed by a probe"), cri: goneAfter(forgetProbes)}, "should be Running"},
		{"a startup probe that kills under the policy Never", sabotage{scenario: changed(only("killed by its startup probe", 0), func(s *subject) { s.pod.Spec.RestartPolicy, s.end = v1.RestartPolicyNever, succeeds })}, ""},
		{"sidecars that end while their pod is deleted", sabotage{scenario: sidecarsEnd()}, ""},
		{"sidecars that end early while their pod is deleted", sabotage{scenario: sidecarsEnd(), cri: func(_ *world, _ string, req, _ any, do func() error) error {
			if stop, ok := req.(*runtimeapi.StopContainerRequest); ok {
				stop.Timeout = 5
			}
			return do()
		}}, "before its grace period ended"},
		{"a deletion with less time shortly before the end", sabotage{scenario: deletedAgain(39900 * time.Millisecond)}, ""},
		{"a deletion with less time", sabotage{scenario: deletedAgain(20 * time.Second)}, ""},
		{"a stop that gets longer", sabotage{scenario: deletedAgain(20 * time.Second), cri: func(w *world, _ string, req, _ any, do func() error) error {
			if stop, ok := req.(*runtimeapi.StopContainerRequest); ok && time.Since(start()) > 15*time.Second {
				stop.Timeout = 30
			}
			return do()
		}}, "was begun anew and is over 10s later than before"},
		{"another image for what has finished", sabotage{scenario: with(only("one ends, one runs", 0), 15*time.Second, "change the image", func(w *world) { w.changeImage(w.scenario.subjects[0]) })}, ""},
		{"a finished container that another image starts", sabotage{scenario: with(only("one ends, one runs", 0), 15*time.Second, "change the image", func(w *world) {
			w.changeImage(w.scenario.subjects[0])
			image(w, "c0", newImage, 7)
		})}, "was started again after exit code 1, against its policy Never"},
		{"another image for an init container that runs", sabotage{scenario: with(only(longInit, 0), 3*time.Second, "change the image", func(w *world) { w.changeInitImage(w.scenario.subjects[0]) })}, ""},
		{"an init container that ends for another image", sabotage{scenario: with(only(longInit, 0), 3*time.Second, "change the image", func(w *world) {
			w.changeInitImage(w.scenario.subjects[0])
			stopAll(w, 30)
		})}, "was ended without a reason"},
		{"a volume that follows its pod", sabotage{scenario: with(only(told, 0), 10*time.Second, "annotate p0", func(w *world) { w.annotate(w.scenario.subjects[0], "second") })}, ""},
		{"a volume that stays behind", sabotage{scenario: only(told, 0), look: spoils("kubernetes.io~downward-api", "self", "note")}, `pod p0 (told of itself) has "spoilt" in the file of its note`},
		{"an image that vanishes before the start", sabotage{scenario: with(only(longInit, 0), 3*time.Second, "an image vanishes", func(w *world) { w.rt.LoseImage(goodImage) })}, ""},
		{"an image that is not pulled again", sabotage{
			scenario: with(only(longInit, 0), 3*time.Second, "an image vanishes", func(w *world) { w.rt.LoseImage(goodImage) }),
			cri:      unless("PullImage", func(n int) bool { return n > 1 }),
		}, "pod p0 (long init) should be Running"},
		{"the room of what has ended", sabotage{scenario: spentBy(spender)}, ""},
		{"a rejection for the room of what has ended", sabotage{scenario: with(spentBy(filler), 15*time.Second, "p0 is said to have ended", func(w *world) {
			w.judge.mu.Lock()
			defer w.judge.mu.Unlock()
			w.judge.facts["p0"].phase = v1.PodSucceeded // as if podsync counted what has ended
		})}, "was rejected for the room of pods that had ended"},
		{"a podsync that knows its Node late", sabotage{
			scenario: with(only("host network", 0), 10*time.Second, "podsync is killed", func(w *world) { w.crash("SIGKILL") }), api: lateNode,
		}, ""},
		{"an address that is taken back", sabotage{
			scenario: only("host network", 10*time.Second), api: rewrites(`("phase":"Running".*)"podIP":"[^"]*","podIPs":\[[^\]]*\]`, `$1"podIP":null,"podIPs":null`),
		}, "which is on the host's network, was taken back"},
		{"an end that is not told", sabotage{
			scenario: only("forever", 10*time.Second), api: rewrites(`"phase":"(Failed|Succeeded)"`, `"phase":"Running"`),
		}, "was deleted while its status did not say how it ended"},
		{"a status that is refused for good", sabotage{scenario: only("forever", 0), api: rewrites(`"observedGeneration":1`, `"observedGeneration":-1`)}, "the apiserver refuses for good (422) what podsync writes"},
	} {
		t.Run(tc.name, func(t *testing.T) { finds(t, tc.shot, tc.want) })
	}
}
