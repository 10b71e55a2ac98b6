package execreaper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// host is a container on virtual time: a first process, and what was added.
type host struct {
	began time.Time

	mu            sync.Mutex
	all           []Process
	ignoresHangup map[int]bool  // what ignores SIGHUP
	stuck         bool          // nothing can be signalled
	takes         time.Duration // to read the processes
	looks         int
	signals       []string

	hangs   chan struct{} // a command of container "c" cannot be read until it is closed
	hanging atomic.Int32
}

func newHost() *host {
	return &host{began: time.Now(), ignoresHangup: map[int]bool{}, all: []Process{{PID: 1, Parent: 999, SID: 1, First: true, Level: 2, ParentLevel: 1}}}
}

func (h *host) now() uint64 {
	return 1000 + uint64(time.Since(h.began)/(10*time.Millisecond)) //nolint:gosec // it is not negative
}

// add starts a command.
func (h *host) add(pid int, argv ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, Process{PID: pid, Parent: 999, SID: pid, Start: h.now(), Argv: argv, Level: 2, ParentLevel: 1})
}

func (h *host) remove(pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = slices.DeleteFunc(h.all, func(p Process) bool { return p.PID == pid })
}

func (h *host) Containers(ids []string) (map[string][]Process, error) {
	time.Sleep(h.takes)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks++
	if !slices.Contains(ids, "c") {
		return nil, nil
	}
	return map[string][]Process{"c": slices.Clone(h.all)}, nil
}

// Commands finds that add has set them.
func (h *host) Commands(all []Process) {
	h.mu.Lock()
	hangs := h.hangs
	h.mu.Unlock()
	if hangs != nil && len(all) > 0 {
		h.hanging.Add(1)
		<-hangs
		h.hanging.Add(-1)
	}
}

func (h *host) Level() int { return 1 }

func (h *host) IgnoresHangup(pid int) bool { return h.ignoresHangup[pid] }

func (h *host) Signal(_ string, p Process, signal unix.Signal) (gone bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stuck {
		return false, errors.New("not permitted")
	}
	h.signals = append(h.signals, fmt.Sprintf("%s %d", unix.SignalName(signal), p.PID))
	if signal == unix.SIGKILL || !h.ignoresHangup[p.PID] {
		h.all = slices.DeleteFunc(h.all, p.same)
	}
	return false, nil
}

func (h *host) sent() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.signals)
}

// inBubble runs a test with a Book that has been there for long.
func inBubble(t *testing.T, test func(t *testing.T, h *host, b *Book)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		b := New(Deps{Host: h, Now: h.now})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = b.Run(ctx) }()
		time.Sleep(time.Minute)
		test(t, h, b)
	})
}

// leave is a client that leaves; the channel gives how that was settled.
func leave(t *testing.T, h *Hold) <-chan error {
	t.Helper()
	h.Left(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Settle(t.Context()) }()
	return done
}

func TestACommandGetsAMomentAHangupAndAtLastAKill(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		s := b.Begin("c", []string{"yes"})
		h.add(20, "yes")
		h.ignoresHangup[20] = true
		start := time.Now()
		done := leave(t, s)
		time.Sleep(moment - 1)
		synctest.Wait()
		if got := h.sent(); len(got) != 0 {
			t.Errorf("before the moment is over: %v", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := h.sent(); !slices.Equal(got, []string{"SIGHUP 20"}) {
			t.Errorf("after the moment: %v", got)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got, took := h.sent(), time.Since(start); !slices.Equal(got, []string{"SIGHUP 20", "SIGKILL 20"}) || took != moment+grace {
			t.Errorf("at last: %v after %v", got, took)
		}
		if len(b.held) != 0 || len(b.ending) != 0 {
			t.Errorf("what is settled is kept: %v %v", b.held, b.ending)
		}
	})
}

func TestACommandThatEndsByItselfIsLookedForWhileItMayStartLater(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		s := b.Begin("c", []string{"cat"})
		h.add(20, "cat")
		done := leave(t, s)
		h.remove(20)
		if err := <-done; err != nil || len(h.sent()) != 0 || counted(b)["ended"] != 1 {
			t.Errorf("it ended by itself: %v, %v, %v", err, h.sent(), counted(b))
		}
		// The client goes before the runtime has started the command.
		s = b.Begin("c", []string{"cat"})
		done = leave(t, s)
		time.Sleep(20 * time.Second)
		h.add(21, "cat")
		if err := <-done; err != nil || !slices.Equal(h.sent(), []string{"SIGHUP 21"}) {
			t.Errorf("it started late: %v, %v", err, h.sent())
		}
		// A session that was old had its command long ago.
		s = b.Begin("c", []string{"cat"})
		h.add(22, "cat")
		time.Sleep(time.Hour)
		h.remove(22)
		before := h.looks
		if err := <-leave(t, s); err != nil || h.looks-before > 2 {
			t.Errorf("an old session: %v, looked for %d times", err, h.looks-before)
		}
	})
}

func TestWhatMayBeAnothersWaitsForTheOther(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		first, second := b.Begin("c", []string{"sh"}), b.Begin("c", []string{"sh"})
		h.add(20, "sh")
		h.add(21, "sh")
		done := leave(t, first)
		time.Sleep(time.Hour)
		if got := h.sent(); len(got) != 0 {
			t.Fatalf("while the other goes on: %v", got)
		}
		// Probes come and go, and nobody looks again for them.
		before := h.looks
		for range 100 {
			b.Begin("c", []string{"probe"}).End()
		}
		synctest.Wait()
		if h.looks != before {
			t.Errorf("%d looks for sessions that are younger", h.looks-before)
		}
		h.remove(21)
		second.End()
		if err := <-done; err != nil || !slices.Equal(h.sent(), []string{"SIGHUP 20"}) {
			t.Errorf("when the other has ended: %v, %v", err, h.sent())
		}
	})
}

// A command that ended well keeps what it has started, also when it was seen
// while another could have been it.
func TestWhatAnEqualCommandThatEndedHasStartedStays(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		first, second := b.Begin("c", []string{"sh"}), b.Begin("c", []string{"sh"})
		h.add(20, "sh")
		h.add(21, "sh")
		h.mu.Lock()
		h.all = append(h.all, Process{PID: 22, Parent: 21, SID: 21, Start: h.now(), Argv: []string{"job"}, Level: 2, ParentLevel: 2})
		h.mu.Unlock()
		done := leave(t, first)
		time.Sleep(time.Hour)
		h.remove(21)
		second.End()
		if err := <-done; err != nil || !slices.Equal(h.sent(), []string{"SIGHUP 20"}) {
			t.Errorf("%v, %v", err, h.sent())
		}
	})
}

func TestBothOfTwoThatCannotBeToldApartEndWhenBothAreLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		first, second := b.Begin("c", []string{"sh"}), b.Begin("c", []string{"sh"})
		h.add(20, "sh")
		h.add(21, "sh")
		done, also := leave(t, first), leave(t, second)
		if err := errors.Join(<-done, <-also); err != nil {
			t.Error(err)
		}
		if got := h.sent(); !slices.Equal(got, []string{"SIGHUP 20", "SIGHUP 21"}) {
			t.Errorf("%v, want each once", got)
		}
	})
}

func TestNothingIsEndedBeforeClientsCameBackNorWhenPodsyncStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.add(20, "sh")
		time.Sleep(time.Second)
		began := h.now()
		h.add(21, "sh")
		time.Sleep(time.Hour)

		b := New(Deps{Host: h, Now: h.now})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = b.Run(ctx) }()
		done := leave(t, b.Resume("c", []string{"sh"}, began))
		time.Sleep(reconnectGrace - 1)
		synctest.Wait()
		// Just in time: the one whose command it is.
		other := b.Resume("c", []string{"sh"}, began)
		time.Sleep(time.Hour)
		cancel()
		if err := <-done; !errors.Is(err, ErrStopped) {
			t.Errorf("when podsync stops: %v", err)
		}
		other.End()
		if got := h.sent(); len(got) != 0 {
			t.Errorf("%v", got)
		}

		b = New(Deps{Host: h, Now: h.now})
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = b.Run(ctx) }()
		if err := <-leave(t, b.Resume("c", []string{"sh"}, began)); err != nil || !slices.Equal(h.sent(), []string{"SIGHUP 21"}) {
			t.Errorf("with the next podsync: %v, %v", err, h.sent())
		}
	})
}

// A shell on a terminal ends with it, before podsync knows whose it was: what it has
// started does not go on for that.
func TestWhatACommandHasStartedEndsThoughItsClientLeftRightAfterPodsyncsStart(t *testing.T) {
	for name, another := range map[string]bool{"alone": false, "beside one that was named later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost()
				b := New(Deps{Host: h, Now: h.now})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { _ = b.Run(ctx) }()
				s := b.Begin("c", []string{"sh"})
				h.add(20, "sh")
				h.mu.Lock()
				h.all = append(h.all, Process{PID: 30, Parent: 20, SID: 20, Start: h.now(), Level: 2, ParentLevel: 2})
				h.mu.Unlock()
				s.Left(t.Context())
				h.remove(20)
				h.mu.Lock()
				h.all[len(h.all)-1].Parent = 1
				h.mu.Unlock()
				done := make(chan error, 1)
				go func() { done <- s.Settle(t.Context()) }()
				time.Sleep(reconnectGrace / 2)
				synctest.Wait()
				if got := h.sent(); len(got) != 0 {
					t.Errorf("before all have come back: %v", got)
				}
				var other *Hold
				if another {
					other = b.Resume("c", []string{"sh"}, s.Began())
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if got := slices.Contains(h.sent(), "SIGHUP 30"); got == another {
					t.Errorf("%v", h.sent())
				}
				if other != nil {
					other.End()
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestACommandThatCannotBeEndedIsAnErrorAndCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		s := b.Begin("c", []string{"sh"})
		h.add(20, "sh")
		h.stuck = true
		if err := <-leave(t, s); err == nil || counted(b)["failed"] != 1 {
			t.Errorf("%v, counted %v", err, counted(b))
		}
	})
}

func TestManySessionsThatAreLeftAtOnceAreEndedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, h *host, b *Book) {
		var all []*Hold
		for n := range 64 {
			all = append(all, b.Begin("c", []string{"sleep", fmt.Sprint(n)}))
			h.add(100+n, "sleep", fmt.Sprint(n))
		}
		start := time.Now()
		var left []<-chan error
		for _, s := range all {
			left = append(left, leave(t, s))
		}
		for _, done := range left {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got, took := h.sent(), time.Since(start); len(got) != 64 || took != moment+grace {
			t.Errorf("%d signals in %v", len(got), took)
		}
	})
}

// TestCommandsAsLongAsTheyMayBeHoldNobodyUp: each exec probe of the node is noted as a
// session, and waits for whoever judges whose process is whose.
func TestCommandsAsLongAsTheyMayBeHoldNobodyUp(t *testing.T) {
	h := newHost()
	b := New(Deps{Host: h, Now: func() uint64 { return 1000 }})
	close(b.since) // it has been there for long
	var holds []*Hold
	for i := range 384 {
		holds = append(holds, b.Begin("c", []string{"sh", "-c", strings.Repeat("a ", 400<<10) + fmt.Sprint(i)}))
	}
	for pid := range 16 {
		h.all = append(h.all, Process{PID: 2 + pid, Parent: 999, SID: 2 + pid, Start: 2000, Argv: []string{"sleep", "9"}, Level: 2, ParentLevel: 1})
	}
	began := time.Now()
	holds[0].Left(t.Context())
	b.Begin("neighbour", []string{"check"}).End()
	if took := time.Since(began); took > 30*time.Second { // it was minutes, and is milliseconds
		t.Errorf("a neighbour's probe waited %v", took)
	}
	held := 0
	for _, h := range holds {
		for _, arg := range h.argv {
			held += len(arg)
		}
	}
	if held > 1<<20 {
		t.Errorf("%d bytes of the commands are held", held)
	}
	for _, h := range holds {
		h.End()
	}
}
