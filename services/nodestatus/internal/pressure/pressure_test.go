package pressure

import (
	"testing"
	"time"

	"github.com/polylet/polylet/services/nodestatus/internal/threshold"
)

func TestPressureComesWithTheGraceAndGoesWithTheTransition(t *testing.T) {
	thresholds := []threshold.Threshold{
		{Signal: "memory.available", Quantity: 100, Hard: true}, {Signal: "nodefs.inodesFree", Percent: 5, Hard: true},
		{Signal: "pid.available", Quantity: 50, Grace: time.Minute},
	}
	const transition = 5 * time.Minute
	good := []Signal{{"memory.available", 500, 1000}, {"nodefs.inodesFree", 500, 1000}, {"pid.available", 500, 1000}}
	bad := func(i int, left uint64) []Signal {
		out := append([]Signal(nil), good...)
		out[i].Available = left
		return out
	}
	start := time.Unix(0, 0)
	steps := []struct {
		after             time.Duration
		signals           []Signal
		memory, disk, pid bool
		again             time.Duration // 0 is none.
	}{
		{0, good, false, false, false, 0},
		{time.Second, bad(0, 99), true, false, false, 0},
		{2 * time.Second, good, true, false, false, time.Second + transition},
		{3 * time.Second, bad(1, 49), true, true, false, time.Second + transition},
		{4 * time.Second, bad(2, 10), true, true, false, 64 * time.Second},
		{30 * time.Second, good, true, true, false, time.Second + transition},
		{40 * time.Second, bad(2, 10), true, true, false, 100 * time.Second},
		{100 * time.Second, bad(2, 10), true, true, true, time.Second + transition},
		{time.Second + transition, good, false, true, true, 3*time.Second + transition},
		{100*time.Second + transition, good, false, false, false, 0},
		{time.Hour, nil, false, false, false, 0},
	}
	var state State
	for _, step := range steps {
		var under map[Kind]bool
		var again time.Time
		state, under, again = Step(state, thresholds, step.signals, transition, start.Add(step.after))
		if under[Memory] != step.memory || under[Disk] != step.disk || under[PID] != step.pid {
			t.Errorf("after %s: %v; want memory %t, disk %t, PID %t", step.after, under, step.memory, step.disk, step.pid)
		}
		if want := step.again; want == 0 && !again.IsZero() || want != 0 && !again.Equal(start.Add(want)) {
			t.Errorf("after %s: look again at %s; want %s", step.after, again.Sub(start), want)
		}
	}
}

func TestASeededPressureStaysForTheTransition(t *testing.T) {
	start := time.Unix(0, 0)
	state := Seed([]Kind{Disk}, start)
	state, under, _ := Step(state, nil, nil, time.Minute, start.Add(59*time.Second))
	if !under[Disk] {
		t.Error("the pressure went before its time")
	}
	if _, under, _ = Step(state, nil, nil, time.Minute, start.Add(time.Minute)); under[Disk] {
		t.Error("the pressure stayed after its time")
	}
}
