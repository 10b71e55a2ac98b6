package limiter

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestNoMoreThanTheLimitAtOnceAndOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Least: 2, Initial: 2, Most: 2})
		var mu sync.Mutex
		var order []uint64
		running, most := 0, 0
		enter := func(o Order) {
			release, err := p.Acquire(t.Context(), o)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			running++
			most = max(most, running)
			order = append(order, o.Seq)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			release()
		}
		for i := range uint64(2) {
			go enter(Order{Seq: i})
		}
		synctest.Wait()
		base := time.Now()
		go enter(Order{Seq: 12, Created: base.Add(time.Minute)})
		go enter(Order{Seq: 11, Created: base})
		go enter(Order{Seq: 10, Created: base})
		go enter(Order{Seq: 99, Created: base.Add(time.Hour), Critical: true})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if most != 2 {
			t.Errorf("at most %d ran at once, want 2", most)
		}
		got := map[uint64]int{}
		for i, s := range order {
			got[s] = i / 2
		}
		if len(order) != 6 || got[99] != 1 || got[10] != 1 || got[11] != 2 || got[12] != 2 {
			t.Errorf("order %v: want the critical and the oldest first", order)
		}
	})
}

func TestHungWorkGivesItsPlaceUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Least: 1, Initial: 1, Most: 1, HungAfter: 5 * time.Second})
		release, err := p.Acquire(t.Context(), Order{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		next, err := p.Acquire(t.Context(), Order{})
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("waited %v, want 5s", waited)
		}
		release()
		release()
		if p.taken != 1 {
			t.Errorf("%d slots taken after the hung work ended, want 1", p.taken)
		}
		next()
	})
}

func TestPlacesThatAreTakenAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var taken atomic.Int32
		p := New(Config{Least: 1, Initial: 1, Most: 1, HungAfter: 5 * time.Second, Acquired: func() func() {
			taken.Add(1)
			return func() { taken.Add(-1) }
		}})
		release, err := p.Acquire(t.Context(), Order{})
		if err != nil || taken.Load() != 1 {
			t.Fatalf("%d taken, %v", taken.Load(), err)
		}
		time.Sleep(6 * time.Second)
		if taken.Load() != 0 {
			t.Errorf("%d taken after the work hung", taken.Load())
		}
		release()
		if release, err = p.Acquire(t.Context(), Order{}); err != nil || taken.Load() != 1 {
			t.Fatalf("%d taken, %v", taken.Load(), err)
		}
		release()
		release()
		if taken.Load() != 0 {
			t.Errorf("%d taken in the end", taken.Load())
		}
	})
}

func TestWhoGivesUpWaitingLeavesNoPlaceBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Least: 1, Initial: 1, Most: 1, HungAfter: time.Hour})
		release, _ := p.Acquire(t.Context(), Order{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Acquire(ctx, Order{}); err == nil {
			t.Fatal("a slot was given beyond the limit")
		}
		release()
		again, err := p.Acquire(t.Context(), Order{})
		if err != nil {
			t.Fatal(err)
		}
		again()
	})
}

// machine imitates a runtime of which cores parts run truly at the same time.
func machine(t *testing.T, p *Limiter, cores, jobs int, each time.Duration) {
	cpu := make(chan struct{}, cores)
	var wg sync.WaitGroup
	for i := range jobs {
		wg.Go(func() {
			release, err := p.Acquire(t.Context(), Order{Seq: uint64(i)})
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			cpu <- struct{}{}
			time.Sleep(each)
			<-cpu
		})
	}
	wg.Wait()
}

func TestPlacesGrowOnlyWhileTheyHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Least: 1, Initial: 4, Most: 64, HungAfter: time.Hour})
		machine(t, p, 4, 400, 100*time.Millisecond)
		if p.Limit() > 6 {
			t.Errorf("%d slots on a machine that does 4 at once", p.Limit())
		}
		p = New(Config{Least: 1, Initial: 4, Most: 64, HungAfter: time.Hour})
		machine(t, p, 32, 2000, 100*time.Millisecond)
		if p.Limit() < 24 {
			t.Errorf("%d slots on a machine that does 32 at once", p.Limit())
		}
	})
}

// slow enters n times at once and keeps each slot for as long as work lasts.
func slow(t *testing.T, p *Limiter, n int, work time.Duration) (inside func() int) {
	var mu sync.Mutex
	in := 0
	for i := range n {
		go func() {
			release, err := p.Acquire(t.Context(), Order{Seq: uint64(i)})
			if err != nil {
				return // the test is over
			}
			mu.Lock()
			in++
			mu.Unlock()
			time.Sleep(work)
			release()
			mu.Lock()
			in--
			mu.Unlock()
		}()
	}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return in
	}
}

func TestWhereAllWorkHangsPlacesAreGivenUpEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Least: 4, Initial: 4, Most: 4, HungAfter: 5 * time.Second})
		inside := slow(t, p, 200, 10*time.Minute)
		time.Sleep(16 * time.Second)
		if got := inside(); got != 12 {
			t.Errorf("%d at work after 16s, want 12: four more after 5s and after 10s", got)
		}
		time.Sleep(3 * time.Minute)
		if got := inside(); got > 40 {
			t.Errorf("%d at work after three minutes: the runtime is flooded", got)
		} else if got <= 12 {
			t.Errorf("%d at work after three minutes: nobody gets a turn any more", got)
		}
		time.Sleep(time.Hour) // lets all end
	})
}

func TestAFewThatHangDoNotMakeOthersWaitLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Least: 2, Initial: 2, Most: 2, HungAfter: 5 * time.Second})
		slow(t, p, 4, time.Hour)
		time.Sleep(time.Minute) // all four hang
		for range 20 {
			release, err := p.Acquire(t.Context(), Order{})
			if err != nil {
				t.Fatal(err)
			}
			release()
		}
		slow(t, p, 2, time.Hour)
		synctest.Wait()
		began := time.Now()
		release, err := p.Acquire(t.Context(), Order{})
		if err != nil {
			t.Fatal(err)
		}
		release()
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("waited %v for a slot behind two that hang, want 5s: others end as they should", waited)
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestNoMoreThanAskedForGoOnWithoutAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Least: 4, Initial: 4, Most: 4, HungAfter: time.Second, MostHung: 4})
		inside := slow(t, p, 100, time.Minute)
		time.Sleep(59 * time.Second)
		if got := inside(); got != 8 {
			t.Errorf("%d at work, want 4 in their slots and 4 without", got)
		}
		time.Sleep(time.Hour)
		if got := inside(); got != 0 {
			t.Errorf("%d still at work: their ends gave no slot back", got)
		}
	})
}

// TestOneNamespaceWhoseWorkHangsLeavesPlacesToOthers: who may make pods can make the
// start of each hang for as long as a call may take, again and again, and theirs are
// older than those that come later.
func TestOneNamespaceWhoseWorkHangsLeavesPlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Least: 2, Initial: 4, Most: 16})
		ctx, cancel := context.WithCancel(t.Context())
		base := time.Now()
		var all sync.WaitGroup
		for i := range uint64(50) {
			all.Go(func() {
				for ctx.Err() == nil {
					release, err := p.Acquire(ctx, Order{Namespace: "bad", Created: base, Seq: i})
					if err != nil {
						return
					}
					select {
					case <-time.After(2 * time.Minute):
					case <-ctx.Done():
					}
					release()
				}
			})
		}
		time.Sleep(time.Minute)
		for i := range uint64(100) {
			began := time.Now()
			patient, impatient := context.WithTimeout(ctx, time.Second)
			release, err := p.Acquire(patient, Order{Namespace: "good", Created: began, Seq: 1000 + i})
			impatient()
			if err != nil {
				t.Errorf("work of another namespace, the %dth, has no slot after a second", i)
				break
			}
			time.Sleep(time.Second)
			release()
			time.Sleep(10 * time.Second)
		}
		cancel()
		all.Wait()
		synctest.Wait()
		if p.taken != 0 || len(p.of) != 0 || len(p.waiting) != 0 {
			t.Errorf("at the end %d slots are taken, by %v, and %d wait", p.taken, p.of, len(p.waiting))
		}
	})
}

func TestANamespaceMayHaveAllPlacesWhileNothingHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Least: 4, Initial: 4, Most: 4})
		for i := range uint64(4) {
			release, err := p.Acquire(t.Context(), Order{Namespace: "one", Seq: i})
			if err != nil {
				t.Fatal(err)
			}
			defer release()
		}
		if p.taken != 4 {
			t.Errorf("%d of 4 slots are taken", p.taken)
		}
	})
}
