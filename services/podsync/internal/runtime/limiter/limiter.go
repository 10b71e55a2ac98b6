// Package limiter bounds how many sandboxes and containers the runtime is asked to
// start or stop at once, and who comes first. A runtime that gets a whole burst
// at once makes every pod wait for all; given a few at a time, half of the burst
// is ready in half of the time.
//
// It owns the places and their order; it must never know what is done in one.
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

// Config of a Pacer; zero fields take their defaults.
type Config struct {
	// Least, Initial and Most bound the number of places: 1, 2 and 8 per core.
	Least, Initial, Most int
	// HungAfter is when work that has not ended gives its place up; 5 s. It is
	// longer while more work does so than ends in its place: a runtime that is
	// slow as a whole must not get everything at once.
	HungAfter time.Duration
	// MostHung is how much work may go on without a place; beyond that it keeps
	// its place. No bound when 0.
	MostHung int
	// Taken is told when a place is taken, and free when it is given back; may be nil.
	Taken func() (free func())
}

// Pacer gives out places. Safe for concurrent use.
type Pacer struct {
	cfg Config

	mu    sync.Mutex
	limit int
	taken int
	hung  int // work that goes on without a place
	// late is by how much more work has become hung than has ended in its place
	// lately, hung at most.
	late    int
	of      map[string]int // taken, by namespace
	waiting []*waiter
	gauge   gauge
}

type waiter struct {
	order    Order
	ready    chan struct{}
	patience time.Duration // set before ready is closed
}

// New returns a Pacer with all places free.
func New(cfg Config) *Pacer {
	cores := runtime.GOMAXPROCS(0)
	def := func(v *int, n int) {
		if *v <= 0 {
			*v = n
		}
	}
	def(&cfg.Least, cores)
	def(&cfg.Initial, 2*cores)
	def(&cfg.Most, 8*cores)
	if cfg.Taken == nil {
		cfg.Taken = func() func() { return func() {} }
	}
	if cfg.HungAfter <= 0 {
		cfg.HungAfter = 5 * time.Second
	}
	return &Pacer{cfg: cfg, of: map[string]int{}, limit: min(max(cfg.Initial, cfg.Least), cfg.Most)}
}

// Limit is how many places there are now.
func (p *Pacer) Limit() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit
}

// Enter waits for a place. leave gives it back, and may be called more than
// once; work that does not end gives its place up by itself. An error is ctx's.
func (p *Pacer) Enter(ctx context.Context, order Order) (leave func(), err error) {
	p.mu.Lock()
	if p.taken < p.limit && len(p.waiting) == 0 && p.shares(order) {
		p.take(order)
		patience := p.patience()
		p.mu.Unlock()
		return p.place(patience, order), nil
	}
	w := &waiter{order: order, ready: make(chan struct{})}
	at, _ := slices.BinarySearchFunc(p.waiting, w, func(a, b *waiter) int {
		if b.order.before(a.order) {
			return 1
		}
		return -1
	})
	p.waiting = slices.Insert(p.waiting, at, w)
	p.admit() // who waits may have to leave places to others
	p.mu.Unlock()
	select {
	case <-w.ready:
		return p.place(w.patience, order), nil
	case <-ctx.Done():
		p.giveUp(w)
		return nil, ctx.Err()
	}
}

// giveUp takes a waiter out, or passes its place on when it has just got one.
func (p *Pacer) giveUp(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		return
	}
	p.give(w.order)
	p.admit()
}

// shares says whether work may have a place as far as its namespace is concerned:
// while work hangs, half of the places are for others, as who may make pods can make
// them hang. The lock is held.
func (p *Pacer) shares(order Order) bool {
	return p.late == 0 || order.Namespace == "" || p.of[order.Namespace] < max(1, p.limit/2)
}

// take and give count a place that is taken and given back. The lock is held.
func (p *Pacer) take(order Order) {
	p.taken++
	p.of[order.Namespace]++
}

func (p *Pacer) give(order Order) {
	p.taken--
	if p.of[order.Namespace]--; p.of[order.Namespace] == 0 {
		delete(p.of, order.Namespace)
	}
}

// patience is how long work that begins now may keep its place. The lock is held.
func (p *Pacer) patience() time.Duration {
	return p.cfg.HungAfter * time.Duration(p.limit+p.late) / time.Duration(p.limit)
}

// place is a place that was taken, to be kept so long at most.
func (p *Pacer) place(patience time.Duration, order Order) (leave func()) {
	const working, hung, left = 0, 1, 2
	state, free := working, p.cfg.Taken()
	p.mu.Lock() // timer is set before its function looks at it
	defer p.mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(patience, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case state != working:
			return
		case p.cfg.MostHung > 0 && p.hung >= p.cfg.MostHung:
			timer.Reset(patience)
			return
		}
		state = hung
		free()
		p.give(order)
		p.hung++
		p.late++
		p.admit()
	})
	return func() {
		timer.Stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		switch state {
		case working:
			free()
			p.give(order)
			p.late = max(0, p.late-1)
			p.adapt()
			p.admit()
		case hung:
			p.hung--
			p.late = min(p.late, p.hung)
			p.adapt()
			p.admit()
		}
		state = left
	}
}

// admit gives free places to those who wait. The lock is held.
func (p *Pacer) admit() {
	for p.taken < p.limit {
		i := slices.IndexFunc(p.waiting, func(w *waiter) bool { return p.shares(w.order) })
		if i < 0 {
			return
		}
		w := p.waiting[i]
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.take(w.order)
		w.patience = p.patience()
		close(w.ready)
	}
}
