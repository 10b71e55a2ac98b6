package inflight

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhoComesWithNoneGetsAPlaceHoweverManyShareThem(t *testing.T) {
	for _, sharers := range []int{1, 2, 5, 40} {
		p := newPlaces(512, 384)
		for n := 0; n < sharers; n = 0 {
			for i := range sharers { // each takes one more as long as it can
				if !p.enter(t.Context(), strconv.Itoa(i), 0) {
					n++
				}
			}
			if n == sharers {
				break
			}
		}
		if most := p.has("0"); sharers == 1 && most != 384 || most == 0 {
			t.Errorf("of %d, one has %d", sharers, most)
		}
		if !p.enter(t.Context(), "another", 0) {
			t.Errorf("%d hold all: %d are taken", sharers, p.taken)
		}
	}
}

// They need not come by turns: each takes at once all that it may.
func TestAFewWhoTakeAllThatTheyMayLeaveAPlaceToEachOfOthers(t *testing.T) {
	for _, c := range []struct{ atOnce, mostOfOne, others int }{{32, 24, 4}, {512, 384, 64}} {
		p := newPlaces(c.atOnce, c.mostOfOne)
		for greedy := range 3 {
			for p.has(strconv.Itoa(greedy)) < c.atOnce && p.enter(t.Context(), strconv.Itoa(greedy), 0) {
			}
		}
		if n := p.has("0"); n != c.mostOfOne {
			t.Errorf("the first has %d of %d", n, c.atOnce)
		}
		for other := range c.others - 1 { // the third has one
			if !p.enter(t.Context(), "other "+strconv.Itoa(other), 0) {
				t.Errorf("of %d places none is left to the other %d: %v", c.atOnce, other, p.of)
				break
			}
		}
	}
}

func TestAPlaceGoesToWhoWaitsAndMayHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(4, 3)
		for range 3 {
			p.enter(t.Context(), "greedy", 0)
		}
		got := make(chan string, 3)
		for _, whose := range []string{"greedy", "other", "third"} {
			go func() {
				if p.enter(t.Context(), whose, time.Minute) {
					got <- whose
				}
			}()
			synctest.Wait()
		}
		if len(got) != 1 || <-got != "other" {
			t.Fatal("who has none does not get the fourth place")
		}
		p.leave("greedy")
		synctest.Wait()
		if len(got) != 1 || <-got != "third" {
			t.Fatal("one who has two gets the next before one who has none")
		}
		p.leave("other")
		synctest.Wait()
		if len(got) != 1 || <-got != "greedy" {
			t.Error("nobody else waits, and it gets none")
		}
	})
}

func TestWhoNoLongerWaitsHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(1, 1)
		p.enter(t.Context(), "a", 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if p.enter(ctx, "b", time.Minute) || time.Since(begin) != time.Second || p.waiting.Len() != 0 {
			t.Errorf("after %s, %d wait", time.Since(begin), p.waiting.Len())
		}
		if p.enter(t.Context(), "", time.Minute) || time.Since(begin) != time.Minute+time.Second || p.waiting.Len() != 0 {
			t.Errorf("after %s, %d wait", time.Since(begin), p.waiting.Len())
		}
		if p.leave("a"); p.taken != 0 || len(p.of) != 0 || !p.enter(t.Context(), "", 0) {
			t.Errorf("%d are taken, %v", p.taken, p.of)
		}
	})
}
