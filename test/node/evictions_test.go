package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/hogs"
	"github.com/polylet/polylet/test/harness/said"
)

// Three priorities and all classes of quality of service: who goes, and in which order,
// is what a kubelet 1.36.3 did in this test.
func TestMemoryHogsOfThreePrioritiesGoInTheKubeletsOrder(t *testing.T) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	h := build(t, plan{overrides: map[string]any{
		"kubeReserved": map[string]any{"memory": fmt.Sprint(info.Totalram*uint64(info.Unit) - hogs.May<<20)},
		"evictionHard": map[string]any{
			"memory.available": fmt.Sprintf("%dMi", hogs.Keep), "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"evictionPressureTransitionPeriod": "2s",
	}})
	for name, value := range hogs.Classes() {
		_, err := h.cluster.Client.SchedulingV1().PriorityClasses().Create(h.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
		h.must(err)
	}
	all, push := hogs.OfMemory(app)
	h.create(all...)
	for _, p := range all {
		h.waitReady(p.Name, time.Minute)
	}
	time.Sleep(25 * time.Second) // The kubelet measures every ten: by older figures it ends others.
	h.create(push)
	began := time.Now()
	h.eventually(3*time.Minute, "those that use more than they asked for are evicted", func() error {
		return boolError(len(h.evictedInOrder()) >= hogs.Go, "evicted so far: %v", h.evictedInOrder())
	})
	h.Logf("MEASURED four of six hogs: %s from the push to the last", time.Since(began).Round(time.Second))
	time.Sleep(15 * time.Second) // A real node: had it evicted another one, it would have by then.
	for _, name := range hogs.Stay() {
		if p, err := h.pod(name); err != nil || !isReady(p) || restarts(p) > 0 {
			t.Errorf("%v, %s", err, describe(p))
		}
	}
	h.wantRecord("memory", nil)
}

// evictionsDir has what the kubelet 1.36.3 says of the pods that it evicts, and their
// order, in the tests that compare it: POLYLET_WRITE_EVICTIONS=1 writes it, on a kubelet.
const evictionsDir = "testdata/evictions"

// wantRecord compares what the node says of all pods that it has evicted with what a
// kubelet said. beside are pods that went on the kubelet though others had used the node
// up: polylet ends none of them.
func (h *house) wantRecord(name string, beside []string) {
	h.Helper()
	file := filepath.Join(evictionsDir, name+".txt")
	if os.Getenv("POLYLET_WRITE_EVICTIONS") != "" {
		h.must(os.WriteFile(file, []byte(strings.Join(h.record(nil), "\n")+"\n"), 0o644))
		return
	}
	if onKubelet() {
		return // It differs from itself in whom else it ends.
	}
	data, err := os.ReadFile(file)
	h.must(err)
	var want []string
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		order, is := strings.CutPrefix(line, "in order: ")
		if is {
			line = "in order: " + strings.Join(slices.DeleteFunc(strings.Fields(order), func(pod string) bool { return slices.Contains(beside, pod) }), " ")
		}
		if pod, _, _ := strings.Cut(line, ": "); !slices.Contains(beside, pod) {
			want = append(want, line)
		}
	}
	h.eventually(time.Minute, "all reads as the kubelet's", func() error { // Events are on their way for a while.
		return said.Differ(h.record(want), want)
	})
}

// record is the order, and then what is said of each pod; of those that a kubelet was not
// asked for nothing is.
func (h *house) record(kubelets []string) []string {
	h.Helper()
	list, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{})
	h.must(err)
	return said.Record(list.Items, h.saidByEvents, func(pod string) bool {
		asked := kubelets == nil || slices.ContainsFunc(kubelets, func(line string) bool { return strings.HasPrefix(line, pod+": ") })
		return asked || !strings.HasSuffix(pod, "-open")
	})
}

// evictedInOrder are the pods that went for what the node was short of, first those that went
// first.
func (h *house) evictedInOrder() (names []string) {
	h.Helper()
	list, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{})
	h.must(err)
	return said.InOrder(list.Items)
}

// saidByEvents are the events of a pod's eviction.
func (h *house) saidByEvents(pod string) []corev1.Event {
	h.Helper()
	events, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "reason=Evicted,involvedObject.name=" + pod})
	h.must(err)
	return events.Items
}
