package cputime

import (
	"testing"
	"time"
)

func TestWorkCountsAndAWaitDoesNot(t *testing.T) {
	const waited = 200 * time.Millisecond
	if took := Of(t, func() { time.Sleep(waited) }); took >= waited/2 {
		t.Errorf("a wait of %v counts %v", waited, took)
	}
	var enough time.Duration
	took := Of(t, func() {
		for before := used(t); enough < 20*time.Millisecond; {
			enough = used(t) - before
		}
	})
	if took < enough {
		t.Errorf("%v of work count %v", enough, took)
	}
}
