package observe

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

func TestAnOlderListDoesNotRemoveWhatIsNewer(t *testing.T) {
	s := &sink{pods: map[types.UID]podstate.Observed{}, states: map[string][]podstate.ContainerState{}}
	tb := newTable(s, nil, messages{})
	tb.takeList(tb.begin(), "", nil, nil)
	seq := tb.begin()
	labels := map[string]string{cri.LabelPodUID: "u", cri.LabelContainerName: "c"}
	tb.setContainer(&runtimeapi.ContainerStatus{Id: "x", Labels: labels, State: runtimeapi.ContainerState_CONTAINER_RUNNING}, "s", time.Now())
	tb.takeList(seq, "", nil, nil)
	if o := s.get("u"); len(o.Containers) != 1 {
		t.Fatalf("observed %+v", o)
	}
	tb.takeList(tb.begin(), "u", nil, nil)
	if o := s.get("u"); len(o.Containers) != 0 {
		t.Fatalf("after a list without it: %+v", o)
	}
	tb.setContainer(&runtimeapi.ContainerStatus{Id: "x", Labels: labels}, "s", time.Now())
	if o := s.get("u"); len(o.Containers) != 0 {
		t.Errorf("a late answer brought it back: %+v", o)
	}
}

// An event is made before it comes: what was looked up in between is newer.
func TestALateEventDoesNotUndoALook(t *testing.T) {
	s := &sink{pods: map[types.UID]podstate.Observed{}, states: map[string][]podstate.ContainerState{}}
	tb := newTable(s, nil, messages{})
	tb.takeList(tb.begin(), "", nil, nil)
	at := time.Unix(1000, 0)
	tell := func(state runtimeapi.ContainerState, shares int64, asOf time.Time) {
		tb.setContainer(&runtimeapi.ContainerStatus{
			Id: "x", Labels: map[string]string{cri.LabelPodUID: "u", cri.LabelContainerName: "c"}, State: state,
			Resources: &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuShares: shares}},
		}, "s", asOf)
	}
	running, exited := runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	for _, step := range []struct {
		state  runtimeapi.ContainerState
		shares int64
		asOf   time.Time
		want   int64
	}{
		{running, 1024, at, 1024},
		{running, 2048, at.Add(2 * time.Second), 2048},
		{running, 1024, at.Add(time.Second), 2048},
		{running, 2048, at.Add(4 * time.Second), 2048}, // the same, and newer
		{running, 1024, at.Add(3 * time.Second), 2048},
		{running, 512, at.Add(5 * time.Second), 512},
		{exited, 256, at, 256}, // that it ended is news whenever it comes
	} {
		tell(step.state, step.shares, step.asOf)
		c := s.get("u").Containers
		if len(c) != 1 || c[0].Kernel.Shares != step.want {
			t.Fatalf("after %d shares of %v: %+v, want %d", step.shares, step.asOf, c, step.want)
		}
	}
}

// An event tells of the moment before a change; it comes when the change was made, in
// the same moment, and looked at.
func TestAnEventOfTheMomentOfALookDoesNotUndoIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{pods: map[types.UID]podstate.Observed{}, states: map[string][]podstate.ContainerState{}}
		o := New(Config{}, Deps{Sink: s})
		status := func(shares int64) *runtimeapi.ContainerStatus {
			return &runtimeapi.ContainerStatus{
				Id: "x", Labels: map[string]string{cri.LabelPodUID: "u", cri.LabelContainerName: "c"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
				Resources: &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuShares: shares}},
			}
		}
		made := time.Now()
		o.table.setContainer(status(2048), "s", made)
		time.Sleep(5 * time.Second)
		o.take(t.Context(), &runtimeapi.ContainerEventResponse{
			ContainerId: "x", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, CreatedAt: made.UnixNano(),
			PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: "s", Labels: map[string]string{cri.LabelPodUID: "u"}},
			ContainersStatuses: []*runtimeapi.ContainerStatus{status(1024)},
		})
		if c := s.get("u").Containers; len(c) != 1 || c[0].Kernel.Shares != 2048 {
			t.Errorf("after the event: %+v", c)
		}
	})
}

func TestAStartThatWasCutShortIsNoRun(t *testing.T) {
	st := func(reason, message string, started int64) *runtimeapi.ContainerStatus {
		return &runtimeapi.ContainerStatus{
			State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 128, Reason: reason, Message: message, StartedAt: started, FinishedAt: 5,
		}
	}
	for _, tc := range []struct {
		st   *runtimeapi.ContainerStatus
		want podstate.ContainerState
	}{
		{st("StartError", "failed to start: context canceled", 0), podstate.StateCreated},
		{st("StartError", "context deadline exceeded: unknown", 0), podstate.StateCreated},
		{st("StartError", "exec: \"x\": executable file not found", 0), podstate.StateExited},
		{st("Error", "context canceled", 3), podstate.StateExited},
	} {
		got := convertContainer(tc.st, "", messages{})
		if got.State != tc.want {
			t.Errorf("%s, %q: state %v, want %v", tc.st.GetReason(), tc.st.GetMessage(), got.State, tc.want)
		}
		if got.ExitCode != tc.st.GetExitCode() || got.Reason != tc.st.GetReason() || got.Message != tc.st.GetMessage() || got.FinishedAt.IsZero() {
			t.Errorf("%s, %q: how the runtime shows its end is lost: %+v", tc.st.GetReason(), tc.st.GetMessage(), got)
		}
	}
}
