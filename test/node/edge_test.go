package node_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/hogs"
)

// edge is how long a node is kept at its edge; POLYLET_EDGE has another duration.
const edge = 10 * time.Minute

// Whoever makes a pod anew that is evicted keeps the node at its edge. It must not fall
// off: only that pod goes, each time, and the others notice nothing; the Node stays
// Ready, its lease never lapses, and no process of the agent's own ends. From the second
// eviction on the next pod waits before it starts, so that they become few. The test
// passes on the kubelet, too, which has nothing that waits: about 100 in three minutes.
func TestAHogThatADeploymentMakesAnewIsEvictedEachTimeAndNobodyElse(t *testing.T) {
	if os.Getenv("POLYLET_LONG_TESTS") == "" {
		t.Skip("keeps a node at its edge for ten minutes; make soak runs it")
	}
	long := edge
	if text := os.Getenv("POLYLET_EDGE"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	h := build(t, plan{controllers: true, within: long + 10*time.Minute, overrides: map[string]any{
		"kubeReserved":            map[string]any{"memory": fmt.Sprint(info.Totalram*uint64(info.Unit) - podsMemory<<20)},
		"evictionHard":            map[string]any{"memory.available": fmt.Sprintf("%dMi", keepFree), "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
		"kernelMemcgNotification": true,
	}})
	steady := webApp("steady")
	steady.Spec.Containers[0].Resources = cpuAndMemory("50m", "64Mi", "50m", "64Mi")
	h.create(steady)
	h.waitReady("steady", time.Minute)
	// What asks for memory is admitted though the node is short of it.
	hog := app("hog", "take", fmt.Sprintf("mebibytes=%d", podsMemory-keepFree+30))
	hog.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
	labels := map[string]string{"app": "hog"}
	_, err := h.cluster.Client.AppsV1().Deployments(metav1.NamespaceDefault).Create(h.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "hog"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: hog.Spec},
		},
	}, metav1.CreateOptions{})
	h.must(err)
	h.eventually(time.Minute, "there is a lease", func() error { // A kubelet makes it some time later.
		_, err := h.cluster.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(h.ctx, nodeName, metav1.GetOptions{})
		return err
	})
	agent, longest := h.agentPIDs(), time.Duration(0)
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(time.Second) { // A real node.
		if p, err := h.pod("steady"); err != nil || !isReady(p) || restarts(p) > 0 {
			t.Fatalf("the pod that uses what it asked for: %v, %v", err, describe(p))
		}
		n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, nodeName, metav1.GetOptions{})
		h.must(err)
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				t.Fatalf("the node is not Ready: %s", c.Message)
			}
		}
		longest = max(longest, h.leaseAge())
		if now := h.agentPIDs(); !maps.Equal(now, agent) {
			t.Fatalf("the agent's processes were %v, and are %v", agent, now)
		}
	}
	evicted, killed := h.hogsEnded(labels)
	t.Logf("MEASURED edge: %d evicted, %d killed by the kernel, in %s; the lease was %s old at most", evicted, killed, long, longest.Round(100*time.Millisecond))
	t.Log("MEASURED edge: " + h.legs(labels))
	fewest, most := int(long/time.Minute), int(long/time.Second)
	if !onKubelet() {
		fewest, most = hogs.EvictionsWithin(long)/2, hogs.EvictionsWithin(long)
		h.must(h.wantPutOff(labels))
	}
	if evicted < fewest || evicted > most || killed > evicted/10 {
		t.Errorf("%d were evicted, %d killed by the kernel; between %d and %d were to be", evicted, killed, fewest, most)
	}
	h.must(h.cluster.Client.AppsV1().Deployments(metav1.NamespaceDefault).Delete(h.ctx, "hog", metav1.DeleteOptions{PropagationPolicy: ptr(metav1.DeletePropagationForeground)}))
	h.eventually(7*time.Minute, "the node is short of nothing again", h.noPressure)
}

// wantPutOff wants a person to be told why a hog waits.
func (h *house) wantPutOff(labels map[string]string) error {
	h.Helper()
	list, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})})
	if err != nil {
		return err
	}
	events, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	said := 0
	for i := range events.Items {
		e := &events.Items[i]
		if e.Reason == "BackOff" && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, "pods of ReplicaSet hog-") && strings.Contains(e.Message, "because it was low on memory, and still has MemoryPressure") {
			said++
		}
	}
	if said == 0 {
		return fmt.Errorf("no event of %d says that a hog waits", len(events.Items))
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Status.Phase == corev1.PodPending {
			for _, args := range [][]string{{"explain", p.Namespace + "/" + p.Name}, {"explain", "node"}} {
				out, err := h.polylet(args...)
				h.Logf("polylet %s:\n%s", strings.Join(args, " "), out)
				if err != nil || !strings.Contains(out, "pods of ReplicaSet hog-") {
					return fmt.Errorf("polylet %s: %w\n%s", strings.Join(args, " "), err, out)
				}
			}
		}
	}
	return nil
}

// agentPIDs are those of the agent's processes.
func (h *house) agentPIDs() map[string]int {
	out := map[string]int{}
	for name, p := range h.node.Processes {
		out[name] = p.Pid()
		select {
		case <-p.Done():
			out[name] = 0
		default:
		}
	}
	return out
}

// leaseAge is how long ago the node's lease was renewed, which must not have lapsed.
func (h *house) leaseAge() time.Duration {
	h.Helper()
	lease, err := h.cluster.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(h.ctx, nodeName, metav1.GetOptions{})
	h.must(err)
	age := time.Since(lease.Spec.RenewTime.Time)
	if most := time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second; age > most {
		h.Fatalf("the lease was renewed %s ago, and lasts for %s", age, most)
	}
	return age
}

// legs says how long the parts of a hog's life are on average: times are whole seconds,
// and of hundreds of hogs the mean is not.
func (h *house) legs(labels map[string]string) string {
	h.Helper()
	list, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})})
	h.must(err)
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	var starts, runs, ends, next time.Duration
	n := 0
	for i := range list.Items[:max(len(list.Items)-1, 0)] {
		p, evicted := &list.Items[i], time.Time{}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.DisruptionTarget {
				evicted = c.LastTransitionTime.Time
			}
		}
		if evicted.IsZero() || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Terminated == nil || p.Status.ContainerStatuses[0].State.Terminated.StartedAt.IsZero() {
			continue
		}
		end := p.Status.ContainerStatuses[0].State.Terminated
		n++
		starts += end.StartedAt.Sub(p.CreationTimestamp.Time)
		runs += end.FinishedAt.Sub(end.StartedAt.Time)
		ends += evicted.Sub(end.FinishedAt.Time)
		next += list.Items[i+1].CreationTimestamp.Sub(evicted)
	}
	mean := func(d time.Duration) time.Duration {
		return (d / time.Duration(max(n, 1))).Round(10 * time.Millisecond)
	}
	return fmt.Sprintf("of %d hogs, on average: %s from creation to start, %s to its container's end, %s to the condition, %s to the next one's creation", n, mean(starts), mean(runs), mean(ends), mean(next))
}

// hogsEnded counts how pods with these labels ended.
func (h *house) hogsEnded(labels map[string]string) (evicted, killed int) {
	h.Helper()
	list, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})})
	h.must(err)
	for i := range list.Items {
		p := &list.Items[i]
		for _, c := range p.Status.ContainerStatuses {
			if c.LastTerminationState.Terminated != nil && c.LastTerminationState.Terminated.Reason == "OOMKilled" {
				killed++
			}
		}
		if p.Status.Reason == "Evicted" {
			evicted++
		}
	}
	return evicted, killed
}
