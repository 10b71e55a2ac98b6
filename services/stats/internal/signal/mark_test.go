package signal

import (
	"slices"
	"testing"
	"time"
)

func TestAMarkIsCrossedWhenLessIsLeft(t *testing.T) {
	signals := []Signal{{Name: "memory.available", Available: 99, Capacity: 1000}, {Name: "nodefs.available", Available: 100, Capacity: 1000}}
	marks := []Mark{
		{Signal: "memory.available", Quantity: 99}, {Signal: "memory.available", Quantity: 100}, {Signal: "nodefs.available", Percent: 10}, {Signal: "nodefs.available", Percent: 11},
		{Signal: "pid.available", Quantity: 5},
	}
	if got := Crossed(signals, marks); !slices.Equal(got, []bool{false, true, false, true, false}) {
		t.Errorf("%v", got)
	}
}

func TestMemoryIsNearAMarkByItsDistanceOrByItsSpeed(t *testing.T) {
	at := time.Unix(0, 0)
	memory := func(available uint64, after time.Duration) []Signal {
		return []Signal{{Name: "memory.available", Available: available, Capacity: 1000, Time: at.Add(after)}}
	}
	marks := []Mark{{Signal: "memory.available", Quantity: 100}}
	for name, test := range map[string]struct {
		before, now []Signal
		want        bool
	}{
		"far":                     {nil, memory(500, 0), false},
		"within a tenth":          {nil, memory(199, 0), true},
		"just not":                {nil, memory(200, 0), false},
		"crossed":                 {nil, memory(10, 0), true},
		"falling fast":            {memory(800, 0), memory(500, time.Second), true},
		"falling slowly":          {memory(600, 0), memory(500, time.Second), false},
		"falling fast, long ago":  {memory(800, 0), memory(500, 10*time.Second), false},
		"rising":                  {memory(300, 0), memory(500, time.Second), false},
		"measured twice at once":  {memory(800, 0), memory(500, 0), false},
		"another signal is close": {nil, []Signal{{Name: "nodefs.available", Available: 1, Capacity: 1000}}, false},
	} {
		if got := Near(test.before, test.now, marks); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if Near(nil, memory(1, 0), nil) {
		t.Error("near no mark")
	}
}

func TestOnlyMarksOfMemoryHaveItMeasuredMoreOften(t *testing.T) {
	if Marked([]Mark{{Signal: "nodefs.available"}}) || !Marked([]Mark{{Signal: "nodefs.available"}, {Signal: "allocatableMemory.available"}}) {
		t.Error("it is not told apart")
	}
}

func TestNewFiguresTakeThePlacesOfOldOnes(t *testing.T) {
	all := []Signal{{Name: "a", Available: 1}, {Name: "b", Available: 2}}
	got := With(all, []Signal{{Name: "b", Available: 3}, {Name: "c", Available: 4}})
	if len(got) != 2 || got[0].Available != 1 || got[1].Available != 3 || all[1].Available != 2 {
		t.Errorf("%v, %v", got, all)
	}
}
