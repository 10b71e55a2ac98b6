package node_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// drainedPods are stopped at once, unless POLYLET_TEST_PODS says otherwise:
	// a few on every run, a full node on long ones.
	drainedPods, drainedPodsLong = 30, 110
	// Each takes so long to shut down, and may take so long.
	drainShutdown, drainGrace = 8 * time.Second, 10 * time.Second
)

// A node that is drained stops all its pods at once, with few places in the
// runtime for what costs. Each has its whole grace period all the same.
func TestADrainKillsNoPodThatEndsWithinItsGrace(t *testing.T) {
	pods := drainedPods
	if os.Getenv("POLYLET_LONG_TESTS") != "" {
		pods = drainedPodsLong
	}
	if n, err := strconv.Atoi(os.Getenv("POLYLET_TEST_PODS")); err == nil {
		pods = n
	}
	h := build(t, plan{within: 30 * time.Minute})
	label := metav1.ListOptions{LabelSelector: "drained=yes"}
	for n := range pods {
		p := takesSignals(app(fmt.Sprintf("drained-%d", n), "sleep", "linger="+drainShutdown.String()))
		p.Labels = map[string]string{"drained": "yes"}
		p.Spec.TerminationGracePeriodSeconds = ptr(int64(drainGrace / time.Second))
		h.create(p)
	}
	client := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault)
	h.eventually(15*time.Minute, fmt.Sprintf("%d pods are Ready", pods), func() error {
		list, err := client.List(h.ctx, label)
		if err != nil {
			return err
		}
		waiting := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return isReady(&p) })
		return boolError(len(list.Items) == pods && len(waiting) == 0, "%d are not", len(waiting))
	})
	seen, err := client.Watch(h.ctx, label)
	h.must(err)
	defer seen.Stop()
	began := time.Now()
	h.must(client.DeleteCollection(h.ctx, metav1.DeleteOptions{}, label))
	ends := map[string]corev1.ContainerState{}
	for gone := 0; gone < pods; {
		select {
		case event, open := <-seen.ResultChan():
			p, ok := event.Object.(*corev1.Pod)
			if !open || !ok {
				t.Fatalf("the watch ended with %+v after %d of %d pods", event.Object, gone, pods)
			}
			if len(p.Status.ContainerStatuses) > 0 {
				ends[p.Name] = p.Status.ContainerStatuses[0].State
			}
			if event.Type == watch.Deleted {
				gone++
			}
		case <-h.ctx.Done():
			t.Fatalf("%d of %d pods are gone: %v", gone, pods, h.ctx.Err())
		}
	}
	took := time.Since(began)
	var times []time.Duration
	killed := 0
	for name, end := range ends {
		if end.Terminated == nil || end.Terminated.ExitCode != 0 {
			killed++
			t.Errorf("%s, which ends %s after SIGTERM within its %s, ended as %+v", name, drainShutdown, drainGrace, end)
			continue
		}
		times = append(times, end.Terminated.FinishedAt.Sub(began))
	}
	slices.Sort(times)
	if len(ends) != pods || len(times) == 0 {
		t.Fatalf("the ends of %d of %d pods were seen", len(ends), pods)
	}
	t.Logf("%d pods, %d killed; containers ended %s to %s after the deletion, half of them by %s; all objects were gone after %s",
		pods, killed, times[0].Round(time.Second), times[len(times)-1].Round(time.Second), times[len(times)/2].Round(time.Second), took.Round(100*time.Millisecond))
}
