package peer

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// A process that was stopped for an hour has not been told anything for an hour.
func TestTheTimeInWhichThisProcessDidNotRunIsNotCounted(t *testing.T) {
	now := time.Now()
	e := elapsed{last: now, most: 20 * time.Second}
	for _, test := range []struct{ passed, want time.Duration }{
		{10 * time.Second, 10 * time.Second}, {time.Hour, 20 * time.Second}, {time.Second, time.Second}, {-time.Minute, 0}, {0, 0},
	} {
		now = now.Add(test.passed)
		if got := e.until(now); got != test.want {
			t.Errorf("after %s: %s; want %s", test.passed, got, test.want)
		}
	}
}

func TestARuntimesSilenceGrowsNoFasterThanTime(t *testing.T) {
	now := time.Now()
	known := node.Runtime{Known: true, Silence: 5 * time.Second}
	waited := known
	waited.Unanswered = 30 * time.Second
	for name, test := range map[string]struct {
		old    node.Runtime
		passed time.Duration
		ago    time.Duration
		want   time.Duration
	}{
		"the first answer is believed":                          {passed: time.Second, ago: time.Hour, want: time.Hour},
		"a runtime that answers":                                {old: known, passed: 10 * time.Second, ago: time.Second, want: time.Second},
		"a runtime that does not":                               {old: known, passed: 10 * time.Second, ago: 15 * time.Second, want: 15 * time.Second},
		"podsync, or the clock, comes back from far away":       {old: known, passed: 10 * time.Second, ago: time.Hour, want: 15 * time.Second},
		"podsync was away and the runtime, too":                 {old: waited, passed: 10 * time.Second, ago: time.Hour, want: 45 * time.Second},
		"the clock was set back and the answer is not come yet": {old: known, passed: time.Second, ago: -time.Hour, want: 0},
	} {
		answer := &podsyncv1.GetRuntimeResponse{RuntimeReady: true, NetworkReady: true, LastOkTime: timestamppb.New(now.Add(-test.ago))}
		if got := runtimeFacts(test.old, answer, now, test.passed); got.Silence != test.want || got.Unanswered != 0 {
			t.Errorf("%s: silent for %s, unanswered for %s; want %s and 0s", name, got.Silence, got.Unanswered, test.want)
		}
	}
}
