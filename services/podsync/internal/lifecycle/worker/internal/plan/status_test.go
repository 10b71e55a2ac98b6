package plan

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestTerminationMessagesShareTheirRoomAndKeepWholeCharacters(t *testing.T) {
	long := v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Message: strings.Repeat("ä", 4000)}}}
	st := v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{*long.DeepCopy()}, ContainerStatuses: []v1.ContainerStatus{*long.DeepCopy(), {}}}
	capMessages(&st)
	if got := st.ContainerStatuses[0].State.Terminated.Message; len(got) != 4096 || strings.Trim(got, "ä") != "" {
		t.Errorf("%d bytes of three that share 12 KiB", len(got))
	}
	st.EphemeralContainerStatuses = []v1.ContainerStatus{*long.DeepCopy()}
	capMessages(&st)
	if got := st.ContainerStatuses[0].State.Terminated.Message; len(got) != 3072 {
		t.Errorf("%d bytes of four that share 12 KiB", len(got))
	}
	st.ContainerStatuses = append(st.ContainerStatuses, v1.ContainerStatus{})
	capMessages(&st)
	if got := st.ContainerStatuses[0].State.Terminated.Message; len(got) != 2456 || strings.Trim(got, "ä") != "" {
		t.Errorf("%d bytes, cut in the middle of a character", len(got))
	}
}
