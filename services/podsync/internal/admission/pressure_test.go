package admission

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestWhatIsSaidOfThePressureCountsForItsTimeAndThenTheNode(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	said := func(left time.Duration, conditions ...v1.NodeConditionType) Pressure {
		return Pressure{Conditions: conditions, Said: now, Until: now.Add(left)}
	}
	short := node(pressed(v1.NodeDiskPressure))
	for _, tc := range []struct {
		name string
		said Pressure
		node *v1.Node
		want []v1.NodeConditionType
	}{
		{"nobody has said anything", Pressure{}, short, []v1.NodeConditionType{v1.NodeDiskPressure}},
		{"nobody has, and the node is well", Pressure{}, node(), nil},
		{"it is said before the Node says it", said(time.Second, v1.NodeMemoryPressure), node(), []v1.NodeConditionType{v1.NodeMemoryPressure}},
		{"it is over before the Node says it", said(time.Second), short, nil},
		{"something else is said", said(time.Second, v1.NodePIDPressure), short, []v1.NodeConditionType{v1.NodePIDPressure}},
		{"it was said long ago", said(0, v1.NodeMemoryPressure), short, []v1.NodeConditionType{v1.NodeDiskPressure}},
		{"it was said long ago, and the node is well", said(-time.Hour, v1.NodeMemoryPressure), node(), nil},
		{"there is no Node yet", said(time.Second, v1.NodeDiskPressure), nil, []v1.NodeConditionType{v1.NodeDiskPressure}},
		{"there is no Node, and nobody says anything", said(0, v1.NodeDiskPressure), nil, nil},
	} {
		if got := tc.said.Holding(tc.node, now); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestAPodIsRejectedForThePressureThatIsSaid(t *testing.T) {
	now := time.Now()
	in := Input{Pod: pod("p", guaranteed), Node: node(), Now: now, Said: Pressure{Conditions: []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure}, Said: now, Until: now.Add(time.Second)}}
	if got := Check(in); got.Decision != podstate.Rejected || got.Reason != "Evicted" || got.Message != "The node had condition: [MemoryPressure DiskPressure]. " {
		t.Errorf("%+v", got.Admission)
	}
	in.Now = in.Said.Until
	if got := Check(in); got.Decision != podstate.Admitted {
		t.Errorf("when that counts no more: %+v", got.Admission)
	}
}

// What the Node says may be from before a restart of all, after which nothing of it is
// true, and a pod that is rejected stays so.
func TestAPodWaitsAMomentForWhoMeasuresBeforeTheNodeAloneSpeaksAgainstIt(t *testing.T) {
	now := time.Now()
	in := Input{Pod: pod("p", guaranteed), Node: node(pressed(v1.NodeDiskPressure)), Now: now, Waited: unsaid - time.Second}
	if got := Check(in); got.Decision != podstate.AdmissionPending || got.Reason != "Evicted" {
		t.Errorf("while nobody has said anything: %+v", got.Admission)
	}
	said := in
	said.Said = Pressure{Said: now, Until: now.Add(time.Minute)}
	if got := Check(said); got.Decision != podstate.Admitted {
		t.Errorf("when it is said that there is none: %+v", got.Admission)
	}
	said.Said.Conditions = []v1.NodeConditionType{v1.NodeDiskPressure}
	if got := Check(said); got.Decision != podstate.Rejected {
		t.Errorf("when it is said that there is: %+v", got.Admission)
	}
	said.Said = Pressure{Said: now.Add(-time.Hour), Until: now.Add(-time.Minute)}
	if got := Check(said); got.Decision != podstate.Rejected {
		t.Errorf("when whoever said something is away: %+v", got.Admission)
	}
	in.Waited = unsaid
	if got := Check(in); got.Decision != podstate.Rejected {
		t.Errorf("after a moment: %+v", got.Admission)
	}
}
