package podutil

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestWhatAStatusSaysOfAContainerIsFoundInEachOfItsLists(t *testing.T) {
	st := &v1.PodStatus{
		InitContainerStatuses:      []v1.ContainerStatus{{Name: "first"}},
		ContainerStatuses:          []v1.ContainerStatus{{Name: "main"}, {Name: "side"}},
		EphemeralContainerStatuses: []v1.ContainerStatus{{Name: "debug"}},
	}
	for name, want := range map[string]*v1.ContainerStatus{
		"first": &st.InitContainerStatuses[0], "side": &st.ContainerStatuses[1], "debug": &st.EphemeralContainerStatuses[0], "other": nil,
	} {
		if got := ContainerStatus(st, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := StatusIn(st.ContainerStatuses, "first"); got != nil {
		t.Errorf("in another list: %v", got)
	}
}

func TestTheRuntimesNameIsTakenOffAContainersID(t *testing.T) {
	for id, want := range map[string]string{"containerd://abc": "abc", "abc": "abc", "": "", "a://b://c": "b://c"} {
		if got := BareID(id); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
}
