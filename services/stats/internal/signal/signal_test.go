package signal

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/process"
)

func TestSignalsAreComputedFromWhatIsKnown(t *testing.T) {
	at := time.Unix(100, 0)
	root := &disk.Filesystem{Time: at, Capacity: 1000, Available: 400, Inodes: 50, InodesFree: 20}
	noInodes := &disk.Filesystem{Time: at, Capacity: 2000, Available: 900}
	for name, test := range map[string]struct {
		facts Facts
		want  []Signal
	}{
		"nothing": {},
		"everything": {
			facts: Facts{
				Node: &Memory{Limit: 100, WorkingSet: 30, Idle: 7, Time: at}, Pods: &Memory{Limit: 80, WorkingSet: 90, Time: at}, Root: root, Image: noInodes, Container: noInodes,
				Processes: &process.Numbers{Running: 30, Max: 100}, Time: at,
			},
			want: []Signal{
				{"allocatableMemory.available", 0, 80, 0, at}, {"containerfs.available", 900, 2000, 0, at}, {"imagefs.available", 900, 2000, 0, at},
				{"memory.available", 70, 100, 7, at}, {"nodefs.available", 400, 1000, 0, at}, {"nodefs.inodesFree", 20, 50, 0, at}, {"pid.available", 70, 100, 0, at},
			},
		},
		"more processes than allowed": {facts: Facts{Processes: &process.Numbers{Running: 30, Max: 10}, Time: at}, want: []Signal{{"pid.available", 0, 10, 0, at}}},
	} {
		if diff := cmp.Diff(test.want, Compute(test.facts)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestASignalMovedWhenItsShareChangedByMoreThanAHundredth(t *testing.T) {
	was := []Signal{{Name: "memory.available", Available: 500, Capacity: 1000}}
	for name, test := range map[string]struct {
		now  []Signal
		want bool
	}{
		"same":        {was, false},
		"a little":    {[]Signal{{Name: "memory.available", Available: 510, Capacity: 1000}}, false},
		"much less":   {[]Signal{{Name: "memory.available", Available: 489, Capacity: 1000}}, true},
		"new one":     {append([]Signal{{Name: "imagefs.available"}}, was...), true},
		"other limit": {[]Signal{{Name: "memory.available", Available: 500, Capacity: 1001}}, true},
	} {
		if got := Moved(was, test.now); got != test.want {
			t.Errorf("%s: moved %t; want %t", name, got, test.want)
		}
	}
}
