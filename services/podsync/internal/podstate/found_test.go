package podstate

import (
	"slices"
	"testing"
	"time"
)

func TestWhatIsInTheWayOfAStart(t *testing.T) {
	a := Action{Container: "c", Attempt: 2, SandboxID: "new"}
	of := func(edit func(*Container)) Container {
		c := Container{ID: "x", Name: "c", RestartCount: 2, SandboxID: "new", State: StateExited}
		edit(&c)
		return c
	}
	for name, tc := range map[string]struct {
		found    Container
		halfMade []string
		settled  bool
	}{
		"it runs":                       {of(func(c *Container) { c.State = StateRunning }), nil, true},
		"an earlier one may run":        {of(func(c *Container) { c.State, c.RestartCount = StateUnknown, 1 }), nil, true},
		"it has come and gone":          {of(func(*Container) {}), nil, true},
		"the one before it has ended":   {of(func(c *Container) { c.RestartCount = 1 }), nil, false},
		"that of the sandbox before":    {of(func(c *Container) { c.SandboxID = "old" }), nil, false},
		"it was made and not started":   {of(func(c *Container) { c.State = StateCreated }), []string{"x"}, false},
		"another container's runs":      {of(func(c *Container) { c.Name, c.State = "d", StateRunning }), nil, false},
		"another one was never started": {of(func(c *Container) { c.Name, c.State = "d", StateCreated }), nil, false},
	} {
		halfMade, settled := a.Finds(Observed{Containers: []Container{tc.found}})
		if !slices.Equal(halfMade, tc.halfMade) || settled != tc.settled {
			t.Errorf("%s: %q, settled %v", name, halfMade, settled)
		}
	}
}

// The planner looks at the newest: as long as that is one which was never started, it
// would ask for its start again and again.
func TestAHalfMadeContainerGoesThoughAnEarlierOneLives(t *testing.T) {
	o := Observed{Containers: []Container{
		{ID: "half", Name: "c", RestartCount: 2, State: StateCreated}, {ID: "lives", Name: "c", RestartCount: 1, State: StateRunning},
	}}
	a := Action{Container: "c", Attempt: 2}
	if halfMade, settled := a.Finds(o); !slices.Equal(halfMade, []string{"half"}) || !settled {
		t.Errorf("%q, settled %v", halfMade, settled)
	}
}

func TestWhatAStartThatCameToNothingCountsAs(t *testing.T) {
	running, created := &Container{State: StateRunning}, &Container{State: StateCreated}
	ended := &Container{State: StateExited, StartedAt: time.Unix(1, 0)}
	cutShort := &Container{State: StateExited}
	for name, tc := range map[string]struct {
		found NotStarted
		want  StartCount
	}{
		"its sandbox stands":                          {NotStarted{}, StartFailed},
		"its sandbox stands, and it runs":             {NotStarted{Made: running}, StartFailed},
		"the sandbox is down, nothing was made":       {NotStarted{SandboxDown: true}, NoStart},
		"the sandbox is down, it was made":            {NotStarted{SandboxDown: true, Made: created}, NoStart},
		"the sandbox is down, it never started":       {NotStarted{SandboxDown: true, Made: cutShort}, NoStart},
		"the sandbox is down, it had run":             {NotStarted{SandboxDown: true, Made: ended}, StartRan},
		"the sandbox is down, it runs":                {NotStarted{SandboxDown: true, Made: running}, StartRan},
		"the sandbox is down, it cannot be looked at": {NotStarted{SandboxDown: true, Made: created, Unseen: true}, StartFailed},
		"the sandbox is down, it cannot be removed":   {NotStarted{SandboxDown: true, Made: created, Stays: true}, StartFailed},
	} {
		if got := tc.found.Counts(); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func TestWhatALostAnswerHadMadeIsFound(t *testing.T) {
	o := Observed{
		Sandboxes:  []Sandbox{{ID: "s", Attempt: 1}},
		Containers: []Container{{ID: "c", Name: "c", RestartCount: 3}},
	}
	for _, tc := range []struct {
		kind      Kind
		container string
		attempt   int
		want      bool
	}{
		{StartContainer, "c", 3, true}, {StartContainer, "c", 4, false}, {StartContainer, "d", 3, false}, {StartContainer, "c", 1, false},
		{MakeSandbox, "", 1, true}, {MakeSandbox, "", 2, false}, {MakeSandbox, "", 3, false},
	} {
		a := Action{Key: Key{Kind: tc.kind}, Container: tc.container, Attempt: tc.attempt}
		if got := a.Made(o); got != tc.want {
			t.Errorf("%s %s/%d: %t", tc.kind, tc.container, tc.attempt, got)
		}
	}
}

func TestASandboxOnItsWayOutIsKnownByItsProcess(t *testing.T) {
	until := time.Unix(2, 0)
	before, after := until.Add(-time.Nanosecond), until
	for name, tc := range map[string]struct {
		until time.Time
		seen  SandboxSeen
		want  SandboxCheck
	}{
		"nothing is known":                                    {until, SandboxSeen{}, AskProcess},
		"the process is alive":                                {until, SandboxSeen{Process: ProcessAlive}, SandboxStands},
		"the process is dead":                                 {until, SandboxSeen{Process: ProcessDead, At: before}, AskRuntime},
		"nobody knows of the process":                         {until, SandboxSeen{Process: ProcessNotKnown, At: before}, AskRuntime},
		"it is dead, and the sandbox is not down yet":         {until, SandboxSeen{Process: ProcessDead, Asked: true, At: before}, AskAgain},
		"nobody knows of it, and the sandbox is not down":     {until, SandboxSeen{Process: ProcessNotKnown, Asked: true, At: before}, SandboxStands},
		"it is dead, and the sandbox is still not down":       {until, SandboxSeen{Process: ProcessDead, Asked: true, At: after}, SandboxStands},
		"it is dead, and the sandbox is down":                 {until, SandboxSeen{Process: ProcessDead, Asked: true, Down: true, At: after}, SandboxGoes},
		"it was not killed from outside":                      {time.Time{}, SandboxSeen{}, AskRuntime},
		"it was not killed from outside, the sandbox is down": {time.Time{}, SandboxSeen{Asked: true, Down: true}, SandboxGoes},
		"it was not killed from outside, the sandbox is not":  {time.Time{}, SandboxSeen{Asked: true}, SandboxStands},
		"it was not killed from outside, its process is dead": {time.Time{}, SandboxSeen{Process: ProcessDead, Asked: true}, SandboxStands},
	} {
		a := Action{SandboxUntil: tc.until}
		if got := a.CheckOf(tc.seen); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}
