// Package limiter bounds how many sandboxes and containers the runtime is asked to
// start or stop at once, and who comes first. A runtime that gets a whole burst
// at once makes every pod wait for all; given a few at a time, half of the burst
// is ready in half of the time.
//
// It owns the slots and their order; it must never know what is done in one.
package limiter

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Order says who comes first.
type Order struct {
	// Critical pods come before all others.
	Critical bool
	// Namespace is whose the work is; empty is nobody's.
	Namespace string
	// Idle: nobody waits for it. While work hangs, idle work leaves half of the slots to
	// other work.
	Idle bool
	// Created: older pods come first.
	Created time.Time
	// Seq decides between pods of one age: the smaller comes first.
	Seq uint64
}

func (a Order) before(b Order) bool {
	switch {
	case a.Critical != b.Critical:
		return a.Critical
	case !a.Created.Equal(b.Created):
		return a.Created.Before(b.Created)
	}
	return a.Seq < b.Seq
}

// Config of a Limiter; zero fields take their defaults.
type Config struct {
	// Least, Initial and Most bound the number of slots: 1, 2 and 8 per core.
	Least, Initial, Most int
	// HungAfter is when work that has not ended gives its slot up; 5 s. It is
	// longer while more work does so than ends in its slot: a runtime that is
	// slow as a whole must not get everything at once.
	HungAfter time.Duration
	// MostHung is how much work may go on without a slot; beyond that it keeps
	// its slot. No bound when 0.
	MostHung int
	// Acquired is told when a slot is taken, and free when it is given back; may be nil.
	Acquired func() (free func())
}

// Limiter gives out slots. Safe for concurrent use.
type Limiter struct {
	cfg Config

	mu    sync.Mutex
	limit int
	taken int
	hung  int // work that goes on without a slot
	// late is by how much more work has become hung than has ended in its slot
	// lately, hung at most.
	late    int
	of      map[string]int // taken, by namespace
	waiting []*waiter
	waits   map[string]int // how many of them are of a namespace; nobody's work does not count
	gauge   gauge
}

type waiter struct {
	order    Order
	ready    chan struct{}
	slotTime time.Duration // set before ready is closed
}

// New returns a Limiter with all slots free.
func New(cfg Config) *Limiter {
	cores := runtime.GOMAXPROCS(0)
	def := func(v *int, n int) {
		if *v <= 0 {
			*v = n
		}
	}
	def(&cfg.Least, cores)
	def(&cfg.Initial, 2*cores)
	def(&cfg.Most, 8*cores)
	if cfg.Acquired == nil {
		cfg.Acquired = func() func() { return func() {} }
	}
	if cfg.HungAfter <= 0 {
		cfg.HungAfter = 5 * time.Second
	}
	return &Limiter{cfg: cfg, of: map[string]int{}, waits: map[string]int{}, limit: min(max(cfg.Initial, cfg.Least), cfg.Most)}
}

// Limit is how many slots there are now.
func (p *Limiter) Limit() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

// Acquire waits for a slot. release gives it back, and may be called more than
// once; work that does not end gives its slot up by itself. An error is ctx's.
func (p *Limiter) Acquire(ctx context.Context, order Order) (release func(), err error) {
	p.mu.Lock()
	if p.taken < p.limit && len(p.waiting) == 0 && p.sharesLocked(order) {
		p.takeLocked(order)
		slotTime := p.slotTimeLocked()
		p.mu.Unlock()
		return p.slot(slotTime, order), nil
	}
	w := &waiter{order: order, ready: make(chan struct{})}
	at, _ := slices.BinarySearchFunc(p.waiting, w, func(a, b *waiter) int {
		if b.order.before(a.order) {
			return 1
		}
		return -1
	})
	p.waiting = slices.Insert(p.waiting, at, w)
	if order.Namespace != "" {
		p.waits[order.Namespace]++
	}
	p.admitLocked() // who waits may have to leave slots to others
	p.mu.Unlock()
	select {
	case <-w.ready:
		return p.slot(w.slotTime, order), nil
	case <-ctx.Done():
		p.giveUp(w)
		return nil, ctx.Err()
	}
}

// giveUp takes a waiter out, or passes its slot on when it has just got one.
func (p *Limiter) giveUp(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.removeLocked(i)
	} else {
		p.giveLocked(w.order)
	}
	p.admitLocked()
}

// sharesLocked says whether work may have a slot as far as its namespace is concerned:
// while others wait, or work hangs, half of the slots are for others, as who may make
// pods can make them start slowly and often, or hang, and older than others'. Nobody's
// work waits for nobody: no slot is kept for it.
func (p *Limiter) sharesLocked(order Order) bool {
	if order.Namespace == "" && (!order.Idle || p.late == 0) {
		return true
	}
	others := len(p.waits) > 0
	if p.waits[order.Namespace] > 0 {
		others = len(p.waits) > 1
	}
	return p.late == 0 && !others || p.of[order.Namespace] < (p.limit+1)/2
}

// removeLocked takes a waiter out.
func (p *Limiter) removeLocked(i int) *waiter {
	w := p.waiting[i]
	p.waiting = slices.Delete(p.waiting, i, i+1)
	if p.waits[w.order.Namespace]--; p.waits[w.order.Namespace] <= 0 {
		delete(p.waits, w.order.Namespace)
	}
	return w
}

// takeLocked and giveLocked count a slot that is taken and given back.
func (p *Limiter) takeLocked(order Order) {
	p.taken++
	p.of[order.Namespace]++
}

func (p *Limiter) giveLocked(order Order) {
	p.taken--
	if p.of[order.Namespace]--; p.of[order.Namespace] == 0 {
		delete(p.of, order.Namespace)
	}
}

// slotTimeLocked is how long work that begins now may keep its slot.
func (p *Limiter) slotTimeLocked() time.Duration {
	return p.cfg.HungAfter * time.Duration(p.limit+p.late) / time.Duration(p.limit)
}

// slot is a slot that was taken, to be kept so long at most.
func (p *Limiter) slot(slotTime time.Duration, order Order) (release func()) {
	const working, hung, left = 0, 1, 2
	state, free := working, p.cfg.Acquired()
	p.mu.Lock() // timer is set before its function looks at it
	defer p.mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(slotTime, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case state != working:
			return
		case p.cfg.MostHung > 0 && p.hung >= p.cfg.MostHung:
			timer.Reset(slotTime)
			return
		}
		state = hung
		free()
		p.giveLocked(order)
		p.hung++
		p.late++
		p.admitLocked()
	})
	return func() {
		timer.Stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		switch state {
		case working:
			free()
			p.giveLocked(order)
			p.late = max(0, p.late-1)
			p.adaptLocked()
			p.admitLocked()
		case hung:
			p.hung--
			p.late = min(p.late, p.hung)
			p.adaptLocked()
			p.admitLocked()
		}
		state = left
	}
}

// admitLocked gives free slots to those who wait.
func (p *Limiter) admitLocked() {
	for p.taken < p.limit {
		i := slices.IndexFunc(p.waiting, func(w *waiter) bool { return p.sharesLocked(w.order) })
		if i < 0 {
			return
		}
		w := p.removeLocked(i)
		p.takeLocked(w.order)
		w.slotTime = p.slotTimeLocked()
		close(w.ready)
	}
}
