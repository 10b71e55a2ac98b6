package execreaper

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSessionsInManyContainersHoldUpNoNeighboursLook(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		h.takes = 500 * time.Millisecond // there are tens of thousands of processes
		var all sync.WaitGroup
		for i := range 200 { // one namespace's
			s := b.Begin(fmt.Sprint("container-", i), []string{"true"})
			all.Go(func() {
				s.Left(t.Context())
				s.End()
			})
		}
		synctest.Wait()
		began := time.Now()
		s := b.Begin("c", []string{"sh"})
		h.add(20, "sh")
		s.Left(t.Context())
		if took := time.Since(began); took > 2*h.takes || len(s.certain) != 1 {
			t.Errorf("what a neighbour's client left is looked at after %v: %v", took, s.certain)
		}
		s.End()
		all.Wait()
		if h.looks > 3 || len(b.held) != 0 {
			t.Errorf("%d readings for 201 looks at once; %d containers are remembered", h.looks, len(b.held))
		}
	})
}

func TestACommandThatCannotBeReadHoldsUpItsOwnContainerOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		h.hangs = make(chan struct{})
		h.add(20, "sh")
		var all sync.WaitGroup
		for range 8 { // each is given up
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			s := b.Begin("c", []string{"sh"})
			all.Go(func() {
				defer cancel()
				s.Left(ctx)
				s.End()
			})
			time.Sleep(15 * time.Second)
			if n := h.hanging.Load(); n != 1 {
				t.Errorf("%d reads hang", n)
			}
		}
		all.Wait()
		began := time.Now()
		neighbour := b.Begin("neighbour", []string{"sh"})
		if neighbour.Left(t.Context()); time.Since(began) != 0 {
			t.Errorf("a neighbour's session is looked at after %v", time.Since(began))
		}
		neighbour.End()
		close(h.hangs)
		synctest.Wait()
		s := b.Begin("c", []string{"sh"})
		h.add(21, "sh")
		if err := <-leave(t, s); err != nil || len(h.sent()) != 1 {
			t.Errorf("when it can be read again: %v, %v", err, h.sent())
		}
		if len(b.held) != 0 {
			t.Errorf("%d containers are remembered", len(b.held))
		}
	})
}
