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

func TestTheFirstLineThatDiffersIsShown(t *testing.T) {
	if err := Differ([]string{"in order: a", "a: gone"}, []string{"in order: a", "a: gone"}); err != nil {
		t.Error(err)
	}
	for want, c := range map[string][2][]string{
		"polylet: a: gone\nkubelet: a: went": {{"in order: a", "a: gone", "b"}, {"in order: a", "a: went", "c"}},
		"polylet: \nkubelet: b":              {{"in order: a"}, {"in order: a", "b"}},
		"polylet: b\nkubelet: ":              {{"in order: a", "b"}, {"in order: a"}},
	} {
		if err := Differ(c[0], c[1]); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestPodsAreRecordedInTheOrderInWhichTheyWent(t *testing.T) {
	pod := func(name, reason string, second int64) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: reason,
			Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(second, 0)}},
		}}
	}
	pods := []corev1.Pod{pod("a", "Evicted", 3), pod("b", "Evicted", 1), pod("c", "Terminated", 2), pod("d-open", "Evicted", 3)}
	none := func(string) []corev1.Event { return nil }
	for want, wanted := range map[int]func(string) bool{4: nil, 2: func(name string) bool { return name == "b" }} {
		got := Record(pods, none, wanted)
		if len(got) != want || got[0] != "in order: b a d-open" {
			t.Errorf("%d lines, want %d: %q", len(got), want, got)
		}
	}
}
