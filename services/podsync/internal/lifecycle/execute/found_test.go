package execute

import (
	"slices"
	"testing"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestWhatIsInTheWayOfAStart(t *testing.T) {
	a := podstate.Action{Container: "c", Attempt: 2, SandboxID: "new"}
	of := func(edit func(*podstate.Container)) podstate.Container {
		c := podstate.Container{ID: "x", Name: "c", RestartCount: 2, SandboxID: "new", State: podstate.StateExited}
		edit(&c)
		return c
	}
	for name, tc := range map[string]struct {
		found    podstate.Container
		halfMade []string
		settled  bool
	}{
		"it runs":                       {of(func(c *podstate.Container) { c.State = podstate.StateRunning }), nil, true},
		"an earlier one may run":        {of(func(c *podstate.Container) { c.State, c.RestartCount = podstate.StateUnknown, 1 }), nil, true},
		"it has come and gone":          {of(func(*podstate.Container) {}), nil, true},
		"the one before it has ended":   {of(func(c *podstate.Container) { c.RestartCount = 1 }), nil, false},
		"that of the sandbox before":    {of(func(c *podstate.Container) { c.SandboxID = "old" }), nil, false},
		"it was made and not started":   {of(func(c *podstate.Container) { c.State = podstate.StateCreated }), []string{"x"}, false},
		"another container's runs":      {of(func(c *podstate.Container) { c.Name, c.State = "d", podstate.StateRunning }), nil, false},
		"another one was never started": {of(func(c *podstate.Container) { c.Name, c.State = "d", podstate.StateCreated }), nil, false},
	} {
		halfMade, settled := inTheWay(podstate.Observed{Containers: []podstate.Container{tc.found}}, a)
		if !slices.Equal(halfMade, tc.halfMade) || settled != tc.settled {
			t.Errorf("%s: %q, settled %v", name, halfMade, settled)
		}
	}
}

// The planner looks at the newest: as long as that is one which was never started, it
// would ask for its start again and again.
func TestAHalfMadeContainerGoesThoughAnEarlierOneLives(t *testing.T) {
	o := podstate.Observed{Containers: []podstate.Container{
		{ID: "half", Name: "c", RestartCount: 2, State: podstate.StateCreated}, {ID: "lives", Name: "c", RestartCount: 1, State: podstate.StateRunning},
	}}
	if halfMade, settled := inTheWay(o, podstate.Action{Container: "c", Attempt: 2}); !slices.Equal(halfMade, []string{"half"}) || !settled {
		t.Errorf("%q, settled %v", halfMade, settled)
	}
}

func TestWhatAStartThatCameToNothingCountsAs(t *testing.T) {
	running, created := &podstate.Container{State: podstate.StateRunning}, &podstate.Container{State: podstate.StateCreated}
	ended := &podstate.Container{State: podstate.StateExited, StartedAt: time.Unix(1, 0)}
	cutShort := &podstate.Container{State: podstate.StateExited}
	for name, tc := range map[string]struct {
		down, looked bool
		made         *podstate.Container
		want         attempt
	}{
		"its sandbox stands":                          {false, true, nil, failed},
		"its sandbox stands, and it runs":             {false, true, running, failed},
		"the sandbox is down, nothing was made":       {true, true, nil, none},
		"the sandbox is down, it was made":            {true, true, created, none},
		"the sandbox is down, it never started":       {true, true, cutShort, none},
		"the sandbox is down, it had run":             {true, true, ended, ran},
		"the sandbox is down, it runs":                {true, true, running, ran},
		"the sandbox is down, it cannot be looked at": {true, false, created, failed},
	} {
		if got := counts(tc.down, tc.looked, tc.made); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func TestWhatALostAnswerHadMadeIsFound(t *testing.T) {
	o := podstate.Observed{
		Sandboxes:  []podstate.Sandbox{{ID: "s", Attempt: 1}},
		Containers: []podstate.Container{{ID: "c", Name: "c", RestartCount: 3}},
	}
	if !containerMade(o, podstate.Action{Container: "c", Attempt: 3}) || containerMade(o, podstate.Action{Container: "c", Attempt: 4}) || containerMade(o, podstate.Action{Container: "d", Attempt: 3}) {
		t.Error("of a container")
	}
	if !sandboxMade(o, podstate.Action{Attempt: 1}) || sandboxMade(o, podstate.Action{Attempt: 2}) {
		t.Error("of a sandbox")
	}
}
