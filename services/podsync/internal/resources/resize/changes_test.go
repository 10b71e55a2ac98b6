package resize

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestChangesAreCountedByContainerAndKind(t *testing.T) {
	old := pod("p", "", list("cpu", "1", "memory", "1Gi"))
	now := pod("p", "", list("cpu", "2", "memory", "1Mi"), func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = list("cpu", "3") })
	got := Changes(old, now)
	for _, want := range []Change{{"cpu", "requests", "increase"}, {"memory", "requests", "decrease"}, {"cpu", "limits", "add"}} {
		if !slices.Contains(got, want) {
			t.Errorf("%v is missing in %v", want, got)
		}
	}
	if len(got) != 3 || !slices.Contains(Changes(now, old), Change{"cpu", "limits", "remove"}) {
		t.Errorf("changes %v and back %v", got, Changes(now, old))
	}
}
