package pressure

import (
	"slices"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/threshold"
)

func hard(signal string, quantity, reclaim uint64) threshold.Threshold {
	return threshold.Threshold{Signal: signal, Amount: threshold.Amount{Quantity: quantity}, Reclaim: threshold.Amount{Quantity: reclaim}, Hard: true}
}

func left(name string, available uint64) Signal {
	return Signal{Name: name, Available: available, Capacity: 1000}
}

func TestPressureComesAtOnceAndGoesWithTheTransitionAndAThresholdIsDueAfterItsGrace(t *testing.T) {
	soft := hard("pid.available", 50, 0)
	soft.Hard, soft.Grace = false, time.Minute
	inodes := threshold.Threshold{Signal: "nodefs.inodesFree", Amount: threshold.Amount{Percent: 5}, Hard: true}
	thresholds := []threshold.Threshold{hard("memory.available", 100, 0), inodes, soft}
	const transition = 5 * time.Minute
	good := []Signal{left("memory.available", 500), left("nodefs.inodesFree", 500), left("pid.available", 500)}
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
		due               string
		again             time.Duration // 0 is none.
	}{
		{0, good, false, false, false, "", 0},
		{time.Second, bad(0, 99), true, false, false, "memory.available", 0},
		{2 * time.Second, good, true, false, false, "", time.Second + transition},
		{3 * time.Second, bad(1, 49), true, true, false, "nodefs.inodesFree", time.Second + transition},
		{4 * time.Second, bad(2, 10), true, true, true, "", 64 * time.Second},
		{30 * time.Second, good, true, true, true, "", time.Second + transition},
		{40 * time.Second, bad(2, 10), true, true, true, "", 100 * time.Second},
		{100 * time.Second, bad(2, 10), true, true, true, "pid.available", time.Second + transition},
		{time.Second + transition, good, false, true, true, "", 3*time.Second + transition},
		{100*time.Second + transition, good, false, false, false, "", 0},
		{time.Hour, nil, false, false, false, "", 0},
	}
	var state State
	for _, step := range steps {
		var got Judgement
		state, got = Step(state, thresholds, step.signals, transition, start.Add(step.after))
		if got.Under[Memory] != step.memory || got.Under[Disk] != step.disk || got.Under[PID] != step.pid {
			t.Errorf("after %s: %s; want memory %t, disk %t, PID %t", step.after, got, step.memory, step.disk, step.pid)
		}
		if want := step.again; want == 0 && !got.Again.IsZero() || want != 0 && !got.Again.Equal(start.Add(want)) {
			t.Errorf("after %s: look again at %s; want %s", step.after, got.Again.Sub(start), want)
		}
		if due := signals(got); due != step.due {
			t.Errorf("after %s: %q is due; want %q", step.after, due, step.due)
		}
	}
}

// signals are those of what is due.
func signals(j Judgement) string {
	var out string
	for _, m := range j.Due {
		out += m.Signal
	}
	return out
}

func TestAThresholdThatWasActedUponIsMetUntilEnoughIsReclaimed(t *testing.T) {
	thresholds := []threshold.Threshold{hard("memory.available", 100, 50)}
	start := time.Unix(0, 0)
	var state State
	for i, step := range []struct {
		available uint64
		due       string
	}{{120, ""}, {100, ""}, {99, "memory.available"}, {149, "memory.available"}, {150, ""}, {120, ""}, {99, "memory.available"}} {
		var got Judgement
		state, got = Step(state, thresholds, []Signal{left("memory.available", step.available)}, time.Minute, start.Add(time.Duration(i)*time.Second))
		if due := signals(got); due != step.due {
			t.Errorf("step %d, %d left: %q is due, want %q", i, step.available, due, step.due)
		}
	}
}

func TestASignalThatCannotBeTrueSaysNothing(t *testing.T) {
	thresholds := []threshold.Threshold{{Signal: "memory.available", Amount: threshold.Amount{Percent: 10}, Hard: true}, hard("pid.available", 1<<40, 0)}
	for _, signal := range []Signal{{Name: "memory.available"}, {Name: "pid.available", Available: 1 << 30, Capacity: 10}} {
		if _, got := Step(State{}, thresholds, []Signal{signal}, time.Minute, time.Unix(1, 0)); len(got.Due) > 0 || len(got.Under) > 0 {
			t.Errorf("%+v: %+v", signal, got)
		}
	}
}

func TestASeededPressureStaysForTheTransition(t *testing.T) {
	start := time.Unix(0, 0)
	state := State{}.Seed([]Kind{Disk}, start)
	state, got := Step(state, nil, nil, time.Minute, start.Add(59*time.Second))
	if !slices.Equal(got.Names(), []string{"DiskPressure"}) {
		t.Error("the pressure went before its time")
	}
	if _, got = Step(state, nil, nil, time.Minute, start.Add(time.Minute)); len(got.Names()) > 0 {
		t.Error("the pressure stayed after its time")
	}
}
