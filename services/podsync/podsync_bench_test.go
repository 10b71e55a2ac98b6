package podsync

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/internal/testkit/grpctest"
)

// crowd is podsync on a fake runtime and a fake apiserver, and its pods.
type crowd struct {
	service *Service
	api     *fakeapiserver.Server
	runtime *fakecri.Runtime

	mu      sync.Mutex
	pods    map[string]bool // of each pod that there is, whether it is Ready
	changed chan struct{}
}

func newCrowd(t testing.TB) *crowd {
	t.Helper()
	c := &crowd{runtime: fakecri.New(fakecri.Config{Images: []string{"app:1"}}), pods: map[string]bool{}, changed: make(chan struct{}, 1)}
	c.api = fakeapiserver.New(fakeapiserver.Config{OnWrite: c.note})
	c.service = startInCluster(t, c.runtime, c.api)
	return c
}

func (c *crowd) create(t testing.TB, name string) {
	t.Helper()
	grace := int64(5)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "crowd"}},
		Spec: v1.PodSpec{
			NodeName: "n1", TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{
				Name: "c", Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent, VolumeMounts: []v1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
			}},
			Volumes: []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
		},
	}
	if _, err := c.api.Admin().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *crowd) delete(t testing.TB, name string) {
	t.Helper()
	if err := c.api.Admin().CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// note takes every write to the apiserver.
func (c *crowd) note(w fakeapiserver.Write) {
	if w.GVR.Resource != "pods" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if pod, ok := w.New.(*v1.Pod); ok && pod != nil {
		c.pods[pod.Name] = slices.ContainsFunc(pod.Status.Conditions, func(d v1.PodCondition) bool {
			return d.Type == v1.PodReady && d.Status == v1.ConditionTrue
		})
	} else if pod, ok := w.Old.(*v1.Pod); ok {
		delete(c.pods, pod.Name)
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// count returns how many pods the apiserver has as Ready, of how many.
func (c *crowd) count() (ready, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, is := range c.pods {
		if is {
			ready++
		}
	}
	return ready, len(c.pods)
}

// life starts n pods at once, waits until the apiserver has them as Ready, and
// deletes them.
func (c *crowd) life(b *testing.B, n int) {
	b.Helper()
	c.start(b, n)
	for i := range n {
		c.delete(b, fmt.Sprintf("p%d", i))
	}
	c.wait(b, func() bool { _, all := c.count(); return all == 0 })
}

// start starts n pods at once and waits until the apiserver has them as Ready.
func (c *crowd) start(b *testing.B, n int) {
	b.Helper()
	for i := range n {
		c.create(b, fmt.Sprintf("p%d", i))
	}
	c.wait(b, func() bool { ready, _ := c.count(); return ready == n })
}

func (c *crowd) wait(b *testing.B, done func() bool) {
	b.Helper()
	timeout := time.After(5 * time.Minute)
	for !done() {
		select {
		case <-c.changed:
		case <-timeout:
			b.Fatal("the pods did not get there")
		}
	}
}

// BenchmarkLife is a pod's way from its creation to Ready and away again. The
// fakes' part of the work is in it, so that only differences mean something.
func BenchmarkLife(b *testing.B) {
	for _, pods := range []int{1, 30} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			c := newCrowd(b)
			c.life(b, pods)
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				c.life(b, pods)
			}
			b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N*pods), "cpu-ns/pod")
		})
	}
}

// BenchmarkDocuments is podsync's part of what the gateway serves.
func BenchmarkDocuments(b *testing.B) {
	for _, pods := range []int{10, 110, 500} {
		c := newCrowd(b)
		c.start(b, pods)
		client := podsyncv1.NewPodSyncServiceClient(grpctest.Serve(b, func(s *grpc.Server) { c.service.Register(s) }))
		for name, ask := range map[string]func() ([][]byte, error){
			"pods": func() ([][]byte, error) {
				r, err := client.ListDesiredPods(b.Context(), &podsyncv1.ListDesiredPodsRequest{})
				return r.GetPods(), err
			},
			"runningpods": func() ([][]byte, error) {
				r, err := client.ListRuntimePods(b.Context(), &podsyncv1.ListRuntimePodsRequest{})
				return r.GetPods(), err
			},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, pods), func(b *testing.B) {
				b.ReportAllocs()
				before := cpuTime(b)
				for b.Loop() {
					got, err := ask()
					if err != nil || len(got) != pods {
						b.Fatalf("%d pods, %v", len(got), err)
					}
					size := 0
					for _, pod := range got {
						size += len(pod)
					}
					b.SetBytes(int64(size))
				}
				b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// cpuTime is what the process has used, which a busy machine does not change
// as it does the time of the clock.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func TestTenMinutesInWhichNothingHappensCostNoCallPerPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		const pods = 100
		for i := range pods {
			c.create(t, fmt.Sprintf("p%d", i))
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if ready, all := c.count(); ready != pods {
			t.Fatalf("%d of %d pods are Ready", ready, all)
		}
		runtime, api := c.runtime.Calls(), c.api.Calls()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for what, counts := range map[string][2]map[string]int{"runtime": {runtime, c.runtime.Calls()}, "apiserver": {api, c.api.Calls()}} {
			during := 0
			for call, n := range counts[1] {
				during += n - counts[0][call]
			}
			if during >= pods {
				t.Errorf("%d calls to the %s with %d pods: before %v, after %v", during, what, pods, counts[0], counts[1])
			}
		}
	})
}
