package evictions

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

const lowMemory = lowOn + "memory. Threshold quantity: 100Mi, available: 50Mi. "

// podOf is one of a ReplicaSet's.
func podOf(name, controller string) *v1.Pod {
	yes := true
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{
			{Kind: "Other", Name: "other", UID: "other"}, {Kind: "ReplicaSet", Name: controller, UID: types.UID(controller), Controller: &yes},
		},
	}}
}

// disrupted is what stands on a pod that the node has evicted.
func disrupted(at time.Time) v1.PodCondition {
	return v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, LastTransitionTime: metav1.NewTime(at)}
}

// evictedPod is one that the apiserver tells of.
func evictedPod(name, controller, message string, ended time.Time) *v1.Pod {
	pod := podOf(name, controller)
	pod.Status = v1.PodStatus{
		Phase: v1.PodFailed, Reason: reasonEvicted, Message: message, Conditions: []v1.PodCondition{disrupted(ended.Add(-time.Second))},
		ContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(ended)}}}},
	}
	return pod
}

func TestOnlyWhatTheNodeEndedBecauseItWasShortIsAnEviction(t *testing.T) {
	at := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		change    func(pod *v1.Pod)
		condition v1.NodeConditionType
	}{
		"memory": {func(*v1.Pod) {}, v1.NodeMemoryPressure},
		"a disk": {func(pod *v1.Pod) {
			pod.Status.Message = lowOn + "ephemeral-storage. Threshold quantity: 1, available: 0. "
		}, v1.NodeDiskPressure},
		"its inodes": {func(pod *v1.Pod) { pod.Status.Message = lowOn + "inodes. " }, v1.NodeDiskPressure},
		"processes":  {func(pod *v1.Pod) { pod.Status.Message = lowOn + "pids. " }, v1.NodePIDPressure},

		"of what nobody knows": {func(pod *v1.Pod) { pod.Status.Message = lowOn + "patience. " }, ""},
		"a limit of its own": {func(pod *v1.Pod) {
			pod.Status.Message = `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `
		}, ""},
		"a rejection": {func(pod *v1.Pod) {
			pod.Status.Message, pod.Status.Conditions = "Pod was rejected: The node had condition: [MemoryPressure]. ", nil
		}, ""},
		"by somebody else":   {func(pod *v1.Pod) { pod.Status.Conditions[0].Reason = v1.PodReasonPreemptionByScheduler }, ""},
		"for another reason": {func(pod *v1.Pod) { pod.Status.Reason = "Terminated" }, ""},
		"not yet":            {func(pod *v1.Pod) { pod.Status.Phase = v1.PodRunning }, ""},
		"of nobody's":        {func(pod *v1.Pod) { pod.OwnerReferences = pod.OwnerReferences[:1] }, ""},
		"a mirror":           {func(pod *v1.Pod) { pod.Annotations = map[string]string{podutil.AnnotationMirror: "x"} }, ""},
		"a critical one":     {func(pod *v1.Pod) { p := int32(podutil.CriticalPriority); pod.Spec.Priority = &p }, ""},
	} {
		pod := evictedPod("p", "web", lowMemory, at)
		c.change(pod)
		e, ok := Of(pod, &pod.Status)
		if ok != (c.condition != "") || ok && (e.Condition != c.condition || e.Controller != Controller{UID: "web"} || e.Name != "ReplicaSet web" || !e.End.Equal(at) || e.Witnessed) {
			t.Errorf("%s: %+v, %v", name, e, ok)
		}
	}
	pod := evictedPod("p", "web", lowMemory, at)
	pod.Status.ContainerStatuses = nil
	if e, ok := Of(pod, &pod.Status); !ok || !e.End.Equal(at.Add(-time.Second)) {
		t.Errorf("without containers: %+v, %v", e, ok)
	}
}

// A machine that went down ended its containers, and the node evicts it when it is up again.
func TestAnEvictionIsNoOlderThanItsDecisionThoughTheContainersEndedBefore(t *testing.T) {
	at := time.Unix(1000, 0)
	pod := evictedPod("p", "web", lowMemory, at)
	pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at.Add(time.Minute))
	if e, ok := Of(pod, &pod.Status); !ok || !e.End.Equal(at.Add(time.Minute)) {
		t.Errorf("%+v, %v", e, ok)
	}
}

// Whoever may make pods writes what he likes into their owner references.
func TestWhatNoControllerIsCalledIsNotKeptOrShown(t *testing.T) {
	pod := evictedPod("p", strings.Repeat("x", longestUID+1), lowMemory, time.Unix(1000, 0))
	if e, ok := Of(pod, &pod.Status); ok {
		t.Errorf("of a controller whose UID is none: %+v", e)
	}
	pod = evictedPod("p", "web", lowMemory, time.Unix(1000, 0))
	pod.OwnerReferences[1].Name = "a\x1b[2J\n" + strings.Repeat("é", 2*longestName)
	e, ok := Of(pod, &pod.Status)
	if !ok || !strings.HasPrefix(e.Name, "ReplicaSet a[2Jéé") || len(e.Name) > longestName || !utf8.ValidString(e.Name) {
		t.Errorf("%d bytes, %.40q, %v", len(e.Name), e.Name, ok)
	}
}
