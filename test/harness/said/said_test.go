package said

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatIsSaidHasNoAmountsButThoseOfThePod(t *testing.T) {
	pod := func(message string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "Evicted", QOSClass: corev1.PodQOSBestEffort, Message: message,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodFailed"},
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet", Message: message},
			},
		}}
	}
	event := func(annotations map[string]string) []corev1.Event {
		return []corev1.Event{{Type: "Warning", Reason: "Evicted", ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}}
	}
	for name, c := range map[string]struct {
		message     string
		annotations map[string]string
		want        string
	}{
		"memory": {
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 3Ki. Container a was using 5Ki, request is 0, has larger consumption of memory. ",
			map[string]string{"starved_resource": "memory", "offending_containers": "a", "offending_containers_usage": "5Ki"},
			`The node was low on resource: memory. Threshold quantity: N, available: N. Container a was using N, request is N, has larger consumption of memory. `,
		},
		"a disk": {
			"The node was low on resource: ephemeral-storage. Threshold quantity: 1234, available: 3Ki. Container a was using 5Ki, request is 0, has larger consumption of ephemeral-storage. ",
			map[string]string{"starved_resource": "ephemeral-storage", "offending_containers": "a"},
			`The node was low on resource: ephemeral-storage. Threshold quantity: N, available: N. `,
		},
		"a limit": {`Usage of EmptyDir volume "v" exceeds the limit "2Mi". `, nil, `Usage of EmptyDir volume "v" exceeds the limit "2Mi". `},
	} {
		told := map[string]string{
			"memory": " offending_containers=a offending_containers_usage=N starved_resource=memory", "a disk": " starved_resource=ephemeral-storage",
		}[name]
		quoted := map[bool]string{true: `"` + c.want + `"`}[name != "a limit"]
		if quoted == "" {
			quoted = `"Usage of EmptyDir volume \"v\" exceeds the limit \"2Mi\". "`
		}
		want := "Failed | Evicted | " + c.want + " | class BestEffort | DisruptionTarget True \"TerminationByKubelet\" " + quoted + ` | Ready False "PodFailed" "" | event Warning Evicted ""` + told
		if got := Evicted(pod(c.message), event(c.annotations)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}
