package execreaper

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// heldUp makes the next judgement wait until it is released.
func heldUp(b *Book) (release chan struct{}) {
	release = make(chan struct{})
	var once atomic.Bool
	b.judge = func(sessions []Session, roots []Root) []Ruling {
		if once.CompareAndSwap(false, true) {
			<-release
		}
		return Judge(sessions, roots)
	}
	return release
}

// Each exec probe of the node is noted as a session.
func TestWhileProcessesAreJudgedNobodyElseWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		release := heldUp(b)
		s := b.Begin("c", []string{"sh"})
		h.add(20, "sh")
		left := make(chan struct{})
		go func() {
			defer close(left)
			s.Left(t.Context())
		}()
		synctest.Wait()
		b.Begin("c", []string{"probe"}).End()
		b.Begin("neighbour", []string{"probe"}).End()
		other := b.Begin("neighbour", []string{"sh"})
		before := time.Now()
		time.Sleep(time.Hour) // it is long begun
		if err := <-leave(t, other); err != nil || time.Since(before) != time.Hour+moment {
			t.Errorf("a neighbour's session: %v, after %v", err, time.Since(before)-time.Hour)
		}
		select {
		case <-left:
			t.Fatal("the judgement was not held up")
		default:
		}
		close(release)
		<-left
		if err := s.Settle(t.Context()); err != nil || len(h.sent()) != 1 {
			t.Errorf("%v, %v", err, h.sent())
		}
	})
}

func TestWhoeverWaitsForAnotherSharesTheLook(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		const many = 64
		h.takes = time.Millisecond
		goesOn := b.Begin("c", []string{"sh"})
		h.add(99, "sh")
		var all []*Hold
		for n := range many {
			all = append(all, b.Begin("c", []string{"sh"}))
			h.add(100+n, "sh")
		}
		var settled []<-chan error
		for _, s := range all {
			settled = append(settled, leave(t, s))
		}
		time.Sleep(time.Hour)
		if got := h.sent(); len(got) != 0 {
			t.Fatalf("while the other goes on: %v", got)
		}
		before := h.looks
		h.remove(99)
		goesOn.End()
		for _, done := range settled {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		// One says whose they are, one what hangs up, one what is left; who asks while
		// one has begun needs one more. Those that had nothing left look again.
		if looks := h.looks - before; len(h.sent()) != many || looks > 8 {
			t.Errorf("%d signals, %d looks", len(h.sent()), looks)
		}
	})
}

func TestALookBeginsAfterItWasAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		release := heldUp(b)
		s := b.Begin("c", []string{"sh"})
		defer s.End()
		ask := func() <-chan *look {
			answer := make(chan *look, 1)
			go func() {
				l, err := s.ask(t.Context(), true)
				if err != nil {
					t.Error(err)
					l = &look{}
				}
				answer <- l
			}()
			return answer
		}
		early := ask()
		synctest.Wait()
		h.add(20, "sh")
		later, too := ask(), ask()
		synctest.Wait()
		close(release)
		first, second, third := <-early, <-later, <-too
		if len(first.all) != 1 || len(second.all) != 2 || second != third {
			t.Errorf("the looks saw %d, %d and %d processes; want the two that asked later to share one that saw what came meanwhile", len(first.all), len(second.all), len(third.all))
		}
	})
}

func TestWhoGivesUpLeavesTheLookToOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		release := heldUp(b)
		gives, stays := b.Begin("c", []string{"sh", "1"}), b.Begin("c", []string{"sh", "2"})
		h.add(20, "sh", "1")
		h.add(21, "sh", "2")
		ctx, giveUp := context.WithCancelCause(t.Context())
		given, done := make(chan error, 1), make(chan error, 1)
		go func() {
			gives.Left(ctx)
			given <- gives.Settle(ctx)
		}()
		go func() {
			stays.Left(t.Context())
			done <- stays.Settle(t.Context())
		}()
		synctest.Wait()
		giveUp(errors.New("given up"))
		synctest.Wait()
		select {
		case err := <-given:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		default:
			t.Error("it waits for its look")
		}
		close(release)
		if err := <-done; err != nil || len(h.sent()) != 1 || h.sent()[0] != "SIGHUP 21" {
			t.Errorf("%v, %v", err, h.sent())
		}
	})
}

func TestASessionThatEndsWhileItIsJudgedIsSeenToHaveEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		first, second := b.Begin("c", []string{"sh"}), b.Begin("c", []string{"sh"})
		h.add(20, "sh")
		h.add(21, "sh")
		first.Left(t.Context())
		release := heldUp(b)
		done := make(chan error, 1)
		go func() { done <- first.Settle(t.Context()) }()
		time.Sleep(moment)
		synctest.Wait()
		h.remove(21)
		second.End()
		close(release)
		time.Sleep(time.Hour)
		select {
		case err := <-done:
			if err != nil || len(h.sent()) != 1 {
				t.Errorf("%v, %v", err, h.sent())
			}
		default:
			t.Error("it waits for a session that has ended")
		}
	})
}

// What a terminal's shell had started is found though the shell ends at once.
func TestWhatACommandHadStartedIsFoundThoughTheCommandEndsFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		s, goesOn := b.Begin("c", []string{"sh"}), b.Begin("c", []string{"top"})
		h.add(20, "sh")
		h.add(30, "top")
		h.mu.Lock()
		h.all = append(h.all, Process{PID: 21, Parent: 20, SID: 20, Start: h.now(), Level: 2, ParentLevel: 2})
		h.mu.Unlock()
		time.Sleep(time.Hour)
		s.Left(t.Context())
		h.mu.Lock()
		for i := range h.all {
			if h.all[i].PID == 21 {
				h.all[i].Parent = 1
			}
		}
		h.mu.Unlock()
		h.remove(20)
		// Another that leaves meanwhile must not take what is this one's.
		other := leave(t, goesOn)
		if err := errors.Join(s.Settle(t.Context()), <-other); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(h.sent()); got != "[SIGHUP 21 SIGHUP 30]" && got != "[SIGHUP 30 SIGHUP 21]" {
			t.Errorf("sent %s", got)
		}
	})
}

func TestLittleIsRememberedOfWhatAContainerRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		var all []*Hold
		h.mu.Lock()
		for pid := range mostKeptOfOne / 3 { // of which three are too much
			h.all = append(h.all, Process{PID: 10000 + pid, Parent: 20, SID: 20, Start: h.now(), Argv: []string{"x"}, Level: 2, ParentLevel: 2})
		}
		h.mu.Unlock()
		for range 8 {
			all = append(all, b.Begin("c", []string{"sh"}))
		}
		h.add(20, "sh")
		h.add(21, "other")
		kept := 0
		for _, s := range all {
			s.Left(t.Context())
			kept += len(s.seen)
			for _, p := range s.seen {
				if p.Argv != nil {
					t.Fatalf("the command of %d is remembered: %v", p.PID, p.Argv)
				}
			}
		}
		if kept == 0 || kept > mostKeptOfOne || b.kept != kept {
			t.Errorf("%d processes are remembered, the book says %d; the most is %d", kept, b.kept, mostKeptOfOne)
		}
		for _, s := range all {
			s.End()
		}
		if b.kept != 0 || len(b.held) != 0 {
			t.Errorf("when all have ended %d are remembered", b.kept)
		}
	})
}
