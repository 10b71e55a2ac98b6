package cri

import (
	"testing"
	"time"
)

func TestLooksThatWereGivenUpAreWaitedForLongerNextTime(t *testing.T) {
	p := &lookTimeout{least: 10 * time.Second}
	giveUp := func(op string, asked time.Duration) { p.ended(op, asked, asked, true, time.Minute) }
	for range 5 {
		giveUp("list", 10*time.Second) // five at once
	}
	if got := p.of("list"); got != 20*time.Second {
		t.Errorf("after looks that were given up together: %v, want 20s", got)
	}
	if got := p.of("status"); got != 10*time.Second {
		t.Errorf("another kind of look: %v, want 10s", got)
	}
	for range 5 {
		giveUp("list", p.of("list"))
	}
	if got := p.of("list"); got != time.Minute {
		t.Errorf("at the most %v, want 1m", got)
	}
	p.ended("list", time.Minute, 30*time.Second, false, time.Minute)
	if got := p.of("list"); got != time.Minute {
		t.Errorf("after an answer that came late: %v, want 1m still", got)
	}
	for range 100 {
		p.ended("list", time.Minute, time.Second, false, time.Minute)
	}
	if got := p.of("list"); got != 10*time.Second {
		t.Errorf("after many quick answers: %v, want 10s", got)
	}
}
