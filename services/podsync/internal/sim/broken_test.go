package sim

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// only is a scenario without faults: one pod of a shape, created at once, and
// deleted after a time if that is not zero.
func only(name string, deleted time.Duration) func(int64) *scenario {
	return func(seed int64) *scenario {
		s := &scenario{noisy: 30 * time.Second, byName: map[string]*subject{}}
		grace := int64(30)
		sub := newPod(name, "p0", &grace, rand.New(rand.NewPCG(uint64(seed), 2)))
		s.put(sub)
		s.add(0, "create p0", func(w *world) { w.create(sub) })
		if deleted > 0 {
			s.add(deleted, "delete p0", func(w *world) { w.remove(sub, -1) })
		}
		return s
	}
}

// pair is a scenario without faults of two pods, one after the other; what they
// ask for together is more than the node has, for one that is critical.
func pair(first, second string) func(int64) *scenario {
	return func(seed int64) *scenario {
		s := only(first, 0)(seed)
		grace := int64(2)
		sub := newPod(second, "p1", &grace, rand.New(rand.NewPCG(uint64(seed), 6)))
		s.put(sub)
		s.add(5*time.Second, "create p1", func(w *world) { w.create(sub) })
		for _, each := range s.subjects {
			if each.cpu > 0 && second == critical {
				each.cpu = 40
				each.pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("40")}}
			}
		}
		return s
	}
}

// start is when every bubble's time begins.
func start() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

// with adds an act to a scenario.
func with(base func(int64) *scenario, at time.Duration, what string, do func(*world)) func(int64) *scenario {
	return func(seed int64) *scenario {
		s := base(seed)
		s.add(at, what, do)
		slices.SortStableFunc(s.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
		return s
	}
}

// resizes is a scenario of one pod that is resized in place again and again.
func resizes(to ...size) func(int64) *scenario {
	return func(seed int64) *scenario {
		s := only("sized", 0)(seed)
		sub := s.subjects[0]
		sub.guaranteed, sub.pod.Spec.Containers[0].ResizePolicy = false, nil
		sub.pod.Spec.Containers[0].Resources = sub.sizes[0].requirements(false)
		for i, next := range to {
			s.add(time.Duration(10+5*i)*time.Second, "resize p0", func(w *world) { w.resize(sub, next) })
		}
		return s
	}
}

// hung is a scenario in which a process ends while the stream of events hangs.
func hung() func(int64) *scenario {
	return with(only("one ends, one runs", 0), 500*time.Millisecond, "the stream of events hangs", func(w *world) { w.rt.HangEvents() })
}

// again lets the calls of a method pass, then does something more, once.
func again(method string, more func(w *world, req any)) func(*world, string, any, any, func() error) error {
	done := false
	return func(w *world, m string, req, _ any, do func() error) error {
		err := do()
		if m == method && !done && err == nil {
			done = true
			more(w, req)
		}
		return err
	}
}

// makes starts one more container in the place of the newest, as podsync could.
func makes(w *world, attempt uint32) {
	containers := w.rt.Snapshot().Containers
	old := containers[len(containers)-1]
	config := proto.CloneOf(old.Config)
	config.Metadata.Attempt = attempt
	made, err := w.rt.Runtime().CreateContainer(context.Background(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: old.SandboxID, Config: config, SandboxConfig: old.Sandbox,
	})
	w.must(err)
	_, err = w.rt.Runtime().StartContainer(context.Background(), &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()})
	w.must(err)
}

// makesAs starts a container of another name in the newest sandbox, as podsync
// could.
func makesAs(w *world, name string, attempt uint32) {
	containers := w.rt.Snapshot().Containers
	old := containers[len(containers)-1]
	config := proto.CloneOf(old.Config)
	config.Metadata.Name, config.Metadata.Attempt = name, attempt
	made, err := w.rt.Runtime().CreateContainer(context.Background(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: old.SandboxID, Config: config, SandboxConfig: old.Sandbox,
	})
	w.must(err)
	_, err = w.rt.Runtime().StartContainer(context.Background(), &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()})
	w.must(err)
}

// whenItRuns patches the status of a pod that has run for a while.
func whenItRuns(patch string) func(*world, string, any, any, func() error) error {
	return again("Status", func(w *world, _ any) {
		time.AfterFunc(20*time.Second, func() { patchStatus(w, patch) })
	})
}

// asPodsync is a client that the apiserver takes for podsync's.
func asPodsync(w *world) kubernetes.Interface {
	config := w.api.RESTConfig()
	config.UserAgent = "podsync"
	return kubernetes.NewForConfigOrDie(config)
}

func patchStatus(w *world, patch string) {
	_, err := asPodsync(w).CoreV1().Pods(namespace).Patch(context.Background(), "p0", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	w.must(err)
}

// rewrites changes what podsync writes into statuses; old is a regular expression.
func rewrites(old, now string) func(*world, *http.Request, http.RoundTripper) (*http.Response, error) {
	expr := regexp.MustCompile(old)
	return func(_ *world, req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if req.Method == http.MethodPatch && req.Body != nil {
			body, _ := io.ReadAll(req.Body)
			body = expr.ReplaceAll(body, []byte(now))
			req = req.Clone(req.Context())
			req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		return next.RoundTrip(req)
	}
}
