package gate

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestTheRuntimesOutageIsNoTimeInWhichPodsCouldEnd(t *testing.T) {
	var o outage
	began := time.Now()
	for _, c := range []struct {
		at, want time.Duration
		away     bool
	}{{10, 10, false}, {20, 0, true}, {100, 0, true}, {101, 1, false}, {130, 30, false}} {
		leaving := map[types.UID]time.Duration{"a": c.at * time.Second}
		o.discount(leaving, c.away, began.Add(c.at*time.Second))
		if leaving["a"] != c.want*time.Second {
			t.Errorf("after %d s, away %v: %v, want %d s", c.at, c.away, leaving["a"], c.want)
		}
	}
}
