package node_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/node"
)

const (
	// churnedPods come and go within churnFor, unless POLYLET_TEST_PODS and
	// POLYLET_TEST_CHURN say otherwise.
	churnedPods = 200
	churnFor    = 5 * time.Minute
	// residents are pods that live through it.
	residents = 5
)

// Nothing is left of pods that came and went while processes were killed, and
// those that stayed were not touched.
func TestChurnedPodsLeaveNothingBehindThoughProcessesAreKilled(t *testing.T) {
	if os.Getenv("POLYLET_LONG_TESTS") == "" {
		t.Skip("makes and removes pods for minutes; make soak runs it")
	}
	pods, within := churnedPods, churnFor
	if n, err := strconv.Atoi(os.Getenv("POLYLET_TEST_PODS")); err == nil {
		pods = n
	}
	if d, err := time.ParseDuration(os.Getenv("POLYLET_TEST_CHURN")); err == nil {
		within = d
	}
	h := build(t, plan{within: within + 20*time.Minute})
	h.eventually(time.Minute, "the node is healthy", func() error { return h.node.Healthy(h.ctx) })
	h.seedChurn()
	h.leftovers().want(h, "before the churn")
	before := h.sizes()
	for n := range residents {
		h.create(webApp(fmt.Sprintf("resident-%d", n)))
	}
	for n := range residents {
		h.waitReady(fmt.Sprintf("resident-%d", n), time.Minute)
	}
	guard := h.guard()
	seen := h.churn(pods, within)
	for _, complaint := range guard.stop() {
		t.Error(complaint)
	}
	h.wantTrueStatuses()
	for n := range residents {
		h.delete(fmt.Sprintf("resident-%d", n))
	}
	h.eventually(3*time.Minute, "all pods are gone from the apiserver", func() error {
		list, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		names := ""
		for i := range list.Items {
			names += " " + describe(&list.Items[i])
		}
		return boolError(names == "", "left are%s", names)
	})
	h.unstickRuntime()
	h.eventually(3*time.Minute, "nothing is left of the pods", func() error { return h.leftovers().err(seen.namespaces()) })
	h.eventually(3*time.Minute, "no process has grown", func() error { return grown(before, h.sizes()) })
}

// seedChurn makes the objects that the pods' volumes show.
func (h *house) seedChurn() {
	h.Helper()
	core := h.cluster.Client.CoreV1()
	_, err := core.ConfigMaps(metav1.NamespaceDefault).Create(h.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "churn"}, Data: map[string]string{"key": "value"},
	}, metav1.CreateOptions{})
	h.must(err)
	_, err = core.Secrets(metav1.NamespaceDefault).Create(h.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "churn"}, StringData: map[string]string{"key": "value"},
	}, metav1.CreateOptions{})
	h.must(err)
}

// churn lets pods come, change and go at random times while processes are killed
// at random, and returns when the last was deleted.
func (h *house) churn(pods int, within time.Duration) *witness {
	h.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("POLYLET_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		h.must(err)
	}
	h.Logf("%d pods within %s: POLYLET_TEST_SEED=%d", pods, within, seed)
	seen := h.watchNamespaces()
	end := time.Now().Add(within)
	var alive sync.WaitGroup
	for n := range pods {
		random := rand.New(rand.NewPCG(seed, uint64(n)+1))
		from := time.Duration(random.Int64N(int64(within) * 9 / 10))
		alive.Go(func() {
			if !h.until(end.Add(from - within)) {
				return
			}
			if err := h.oneLife(fmt.Sprintf("churn-%d", n), random, end); err != nil {
				h.Errorf("churn-%d: %v", n, err)
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 0))
	kills := 0
	for time.Now().Before(end) && !h.Failed() {
		h.until(time.Now().Add(time.Duration(500+random.IntN(4000)) * time.Millisecond))
		services := node.Services()
		h.killService(services[random.IntN(len(services))])
		kills++
	}
	alive.Wait()
	h.Logf("%d processes were killed", kills)
	seen.stop()
	return seen
}

// until waits until a moment; false when the test is over before.
func (h *house) until(at time.Time) bool {
	select {
	case <-time.After(time.Until(at)):
		return true
	case <-h.ctx.Done():
		return false
	}
}

// oneLife creates a pod, changes it at times, and deletes it before end.
func (h *house) oneLife(name string, random *rand.Rand, end time.Time) error {
	core := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault)
	if _, err := core.Create(h.ctx, churnPod(name, random), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	left := min(time.Duration(random.Int64N(int64(40*time.Second))), time.Until(end))
	if random.IntN(2) == 0 {
		h.until(time.Now().Add(left / 2))
		left /= 2
		patch := fmt.Sprintf(`{"metadata":{"labels":{"changed":"%d"}},"spec":{"containers":[{"name":"app","image":%q}]}}`, random.Int(), images.TestApp)
		if random.IntN(3) == 0 { // another image restarts the container, and its command is not there
			patch = fmt.Sprintf(`{"spec":{"containers":[{"name":"app","image":%q}]}}`, images.BusyBox)
		}
		if _, err := core.Patch(h.ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("patch: %w", err)
		}
	}
	h.until(time.Now().Add(left))
	options := metav1.DeleteOptions{}
	switch random.IntN(4) {
	case 0:
		options.GracePeriodSeconds = ptr(int64(0))
	case 1:
		options.GracePeriodSeconds = ptr(int64(1))
	}
	if err := core.Delete(h.ctx, name, options); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// churnPod is a pod of a random kind; half of them crash.
func churnPod(name string, random *rand.Rand) *corev1.Pod {
	p := webApp(name)
	if random.IntN(2) == 0 {
		p = app(name, "exit", fmt.Sprintf("code=%d", random.IntN(2)), fmt.Sprintf("after=%dms", random.IntN(3000)))
	}
	p.Spec.RestartPolicy = []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}[random.IntN(3)]
	p.Spec.TerminationGracePeriodSeconds = ptr(int64(random.IntN(5)))
	c := &p.Spec.Containers[0]
	for name, source := range map[string]corev1.VolumeSource{
		"scratch": {EmptyDir: &corev1.EmptyDirVolumeSource{}},
		"memory":  {EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
		"config":  {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "churn"}}},
		"secret":  {Secret: &corev1.SecretVolumeSource{SecretName: "churn"}},
	} {
		if random.IntN(2) == 0 {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		}
	}
	if len(p.Spec.Volumes) > 0 && random.IntN(2) == 0 {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: images.BusyBox, Command: []string{"true"}, ImagePullPolicy: corev1.PullIfNotPresent}}
	}
	switch random.IntN(6) {
	case 0:
		p.Spec.TerminationGracePeriodSeconds = ptr(int64(4)) // longer than the hook, or it is refused
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 2}}}
	case 1:
		c.Args = []string{"stubborn"}
		c.ReadinessProbe = nil
	case 2:
		c.Image = "docker.io/library/no-such-image:v1"
	}
	return p
}

// wantTrueStatuses checks that what the apiserver has of the pods that stayed is
// what the runtime has.
func (h *house) wantTrueStatuses() {
	h.Helper()
	running, err := h.containerIDs()
	h.must(err)
	for n := range residents {
		p := h.waitReady(fmt.Sprintf("resident-%d", n), time.Minute)
		st := p.Status.ContainerStatuses[0]
		if id := bareID(st.ContainerID); running[id] != p.Name || st.RestartCount != 0 {
			h.Errorf("%s: its container %.12s after %d restarts is not among those that run", p.Name, id, st.RestartCount)
		}
	}
}
