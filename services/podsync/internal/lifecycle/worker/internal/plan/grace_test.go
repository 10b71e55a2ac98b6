package plan

import (
	"testing"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestAnOrphanHasTheGracePeriodThatItsContainersWereMadeWith(t *testing.T) {
	for _, tc := range []struct{ annotated, want int64 }{{0, 2}, {30, 30}} {
		s := State{UID: "u", Now: start, Observed: podstate.Observed{Known: true, Containers: []podstate.Container{
			{ID: "c", SandboxID: "s", Name: "c", State: podstate.StateRunning, GraceSeconds: tc.annotated},
		}}}
		out := Plan(s)
		if len(out.Actions) != 1 || out.Actions[0].Kind != podstate.KillContainer || out.Actions[0].GraceSeconds != tc.want {
			t.Errorf("annotated %d: %+v", tc.annotated, out.Actions)
		}
	}
}
