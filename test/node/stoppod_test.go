package node_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// lowOnMemory is what an eviction says.
const lowOnMemory = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "

// evict asks podsync for a pod's end, as nodestatus does.
func (n *asked) evict(pod *corev1.Pod, grace time.Duration) error {
	_, err := n.sync.StopPod(n.h.ctx, &podsyncv1.StopPodRequest{
		Pod:    &podsyncv1.PodRef{Namespace: pod.Namespace, Name: pod.Name, Uid: string(pod.UID)},
		Reason: "Evicted", Message: lowOnMemory, Grace: durationpb.New(grace),
		DisruptionReason: corev1.PodReasonTerminationByKubelet, DisruptionMessage: lowOnMemory,
		EventAnnotations: map[string]string{"starved_resource": "memory"},
	})
	return err
}

func TestAnEvictedPodEndsOnceAsTheKubeletsWhenPodsyncIsKilledAfterItsAnswer(t *testing.T) {
	h := build(t, plan{})
	n := h.ask()
	priority := app("critical", "sleep")
	priority.Spec.PriorityClassName = "system-node-critical"
	pods := []*corev1.Pod{app("calm", "stubborn"), app("killed", "stubborn"), app("bystander", "sleep"), priority}
	for _, p := range pods[:2] {
		p.Spec.TerminationGracePeriodSeconds = ptr(int64(60))
	}
	h.create(pods...)
	for _, p := range pods {
		h.waitReady(p.Name, time.Minute)
	}
	of := func(name string) *corev1.Pod {
		p, err := h.pod(name)
		h.must(err)
		return p
	}
	if err := n.evict(of("critical"), 0); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the critical pod: %v", err)
	}
	h.must(n.evict(of("calm"), 3*time.Second))
	h.must(n.evict(of("killed"), 3*time.Second))
	h.must(syscall.Kill(h.node.Processes["podsync"].Pid(), syscall.SIGKILL))
	began := time.Now()
	<-h.node.Processes["podsync"].Done()
	h.must(h.node.Processes["podsync"].Launch())
	want := fmt.Sprintf(`Failed | Evicted | %s | ContainersReady False "PodFailed" "" | DisruptionTarget True "TerminationByKubelet" %q`, lowOnMemory, lowOnMemory)
	for _, name := range []string{"calm", "killed"} {
		got := h.end(name)
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("%s took %s, and had 3s", name, took)
		}
		if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "| restarts 0, ready false, terminated true") {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
		if err := n.evict(of(name), 0); status.Code(err) != codes.NotFound {
			t.Errorf("%s, which has ended: %v", name, err)
		}
	}
	h.evictedByEvent("killed", "calm")
	time.Sleep(3 * time.Second)
	running, err := h.containerIDs()
	h.must(err)
	var left []string
	for _, pod := range running {
		left = append(left, pod)
	}
	if slices.Sort(left); len(left) != 2 || !strings.Contains(left[0], "bystander") || !strings.Contains(left[1], "critical") {
		t.Errorf("what runs: %v", left)
	}
	h.makesRoom(n)
	h.isShortOfDisk(n)
}

// evictedByEvent checks the events of evictions, of which podsync may have been killed
// before it sent them.
func (h *house) evictedByEvent(names ...string) {
	h.Helper()
	events, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "reason=Evicted"})
	h.must(err)
	for _, e := range events.Items {
		if !slices.Contains(names, e.InvolvedObject.Name) || e.Type != corev1.EventTypeWarning || e.Message != lowOnMemory || e.Annotations["starved_resource"] != "memory" || e.Count != 1 {
			h.Errorf("event %+v", e)
		}
	}
}

// makesRoom has podsync remove what has ended, and what no pod uses.
func (h *house) makesRoom(n *asked) {
	h.Helper()
	freed, err := n.sync.Reclaim(h.ctx, &podsyncv1.ReclaimRequest{Containers: true, Images: true})
	h.must(err)
	if freed.GetContainers() != 4 || len(freed.GetFailed()) != 0 {
		h.Errorf("freed %v", freed)
	}
	list, err := h.runtime.Runtime().ListContainers(h.ctx, &runtimeapi.ListContainersRequest{})
	h.must(err)
	sandboxes, err := h.runtime.Runtime().ListPodSandbox(h.ctx, &runtimeapi.ListPodSandboxRequest{})
	h.must(err)
	if len(list.GetContainers()) != 2 || len(sandboxes.GetItems()) != 2 {
		h.Errorf("%d containers and %d sandboxes are left", len(list.GetContainers()), len(sandboxes.GetItems()))
	}
	h.killService("podsync")
	h.create(app("later", "sleep")) // from an image that is still there, in a sandbox of one
	h.waitReady("later", time.Minute)
	if got := h.end("killed"); !strings.HasPrefix(got, "Failed | Evicted") {
		h.Errorf("what was reclaimed: %s", got)
	}
}

// isShortOfDisk tells podsync of a pressure that its Node does not know.
func (h *house) isShortOfDisk(n *asked) {
	h.Helper()
	_, err := n.sync.SetPressure(h.ctx, &podsyncv1.SetPressureRequest{Conditions: []string{"DiskPressure"}})
	h.must(err)
	h.create(app("too-late", "sleep"))
	if got := h.rejection("too-late"); !strings.Contains(got, "The node had condition: [DiskPressure]. ") {
		h.Errorf("rejected: %s", got)
	}
	_, err = n.sync.SetPressure(h.ctx, &podsyncv1.SetPressureRequest{})
	h.must(err)
	h.create(app("welcome", "sleep"))
	h.waitReady("welcome", time.Minute)
}
