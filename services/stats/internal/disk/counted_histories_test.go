package disk

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// history is a volume of a pod's: named and held are its own, foreign is what others have counted
// for it, ledOut what they have taken from the count of what is named, and heldOut of what is held.
type history struct {
	mu                                    sync.Mutex
	named, held, foreign, ledOut, heldOut Tree
	podsync                               error
	// takes is how long a walk does.
	takes time.Duration
}

func plus(a, b Tree) Tree { return Tree{Bytes: a.Bytes + b.Bytes, Inodes: a.Inodes + b.Inodes} }

func minus(a, b Tree) Tree {
	return Tree{Bytes: a.Bytes - min(a.Bytes, b.Bytes), Inodes: a.Inodes - min(a.Inodes, b.Inodes)}
}

// set changes it while it may be measured.
func (h *history) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func (h *history) count() Tree {
	h.mu.Lock()
	defer h.mu.Unlock()
	return plus(minus(h.named, h.ledOut), plus(h.foreign, minus(h.held, h.heldOut)))
}

// walk counts in twenty steps what is named.
func (h *history) walk(ctx context.Context, _ Directory, soFar func(Measured)) (Measured, error) {
	h.mu.Lock()
	began, named, takes := time.Now(), h.named, h.takes
	h.mu.Unlock()
	const steps = 20
	for i := range uint64(steps) {
		part := Measured{Tree: Tree{Bytes: named.Bytes * i / steps, Inodes: named.Inodes * i / steps}, Time: began}
		soFar(part)
		select {
		case <-ctx.Done():
			return part, ctx.Err()
		case <-time.After(takes / steps):
		}
	}
	return Measured{Tree: named, Time: began}, nil
}

// lives has trees measure it.
func (h *history) lives(t *testing.T, test func(ctx context.Context, all *Trees, dir Directory)) {
	synctest.Test(t, func(t *testing.T) {
		all := NewTrees(TreesConfig{
			Period: time.Minute, Deadline: 30 * time.Second, Forget: time.Hour,
			Held: func(context.Context, Volume) Tree {
				h.mu.Lock()
				defer h.mu.Unlock()
				return h.held
			},
			Count: func(context.Context, Volume) (Tree, error) { return h.count(), h.podsync },
		})
		all.measureOne = h.walk
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = all.Run(ctx) }()
		test(ctx, all, Directory{Path: t.TempDir(), Counted: Volume{PodUID: "u", Name: "v"}})
		cancel()
		<-done
	})
}

// total is what counts for the pod: the figure, and what is held of which the figure has nothing.
func (h *history) total(all *Trees, dir Directory, m Measured) Tree {
	last, _ := all.Last(dir.Path)
	return plus(m.Tree, minus(h.held, last.Unnamed))
}

// renewed is what counts for it by a figure of now, which has nothing of what is held.
func (h *history) renewed(ctx context.Context, all *Trees, dir Directory) (total Tree, late bool) {
	time.Sleep(time.Millisecond) // else it was measured since
	limited, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	got, lates := all.Renew(limited, []Directory{dir}, time.Now(), true)
	return plus(got[dir.Path].Tree, h.held), lates[dir.Path]
}

const gibibyte = uint64(1) << 30

// TestWhatAVolumeHasCountsOnceWhateverOthersDo: whoever owns files may have them counted for it,
// and who works with its pod takes from its count; and its own come, go and lose their names.
func TestWhatAVolumeHasCountsOnceWhateverOthersDo(t *testing.T) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 27))
		size := func() Tree {
			return Tree{Bytes: r.Uint64N(4) * r.Uint64N(1<<32), Inodes: r.Uint64N(4) * r.Uint64N(50)}
		}
		h := &history{named: Tree{Bytes: 1 << 20, Inodes: 5}, takes: 20 * time.Millisecond}
		h.lives(t, func(ctx context.Context, all *Trees, dir Directory) {
			for step := range 40 {
				switch r.IntN(9) {
				case 0:
					h.named = plus(Tree{Bytes: 4096, Inodes: 1}, size())
				case 1:
					h.held = size()
				case 2:
					h.foreign = size()
				case 3:
					h.ledOut = size()
				case 4:
					h.heldOut = size()
				case 5:
					h.podsync = []error{nil, nil, ErrAway, errors.New("not found")}[r.IntN(4)]
				case 6:
					time.Sleep(time.Duration(r.IntN(1200)) * time.Second)
				case 7:
					all.Get(ctx, []Directory{dir})
					time.Sleep(time.Duration(r.IntN(15)) * time.Second)
				case 8:
					h.takes = []time.Duration{0, 20 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second}[r.IntN(4)]
				}
				time.Sleep(awayFor + time.Millisecond)
				total, late := h.renewed(ctx, all, dir)
				truth := plus(h.named, h.held)
				slack := uint64(128<<10) + truth.Bytes/30
				if !late && (total.Bytes > truth.Bytes+slack || total.Bytes+slack < truth.Bytes) {
					t.Errorf("seed %d, step %d: %+v counts, and it has %+v: %+v", seed, step, total, truth, h)
					return
				}
			}
		})
	}
}

// TestNothingCountsTwiceWhileAWalkTakesTooLong: what a walk has counted until it was cut is taken
// into the figure of before.
func TestNothingCountsTwiceWhileAWalkTakesTooLong(t *testing.T) {
	h := &history{named: Tree{Bytes: 6 * gibibyte, Inodes: 10}, held: Tree{Bytes: 10 * gibibyte, Inodes: 1}, takes: 100 * time.Millisecond}
	h.lives(t, func(ctx context.Context, all *Trees, dir Directory) {
		h.renewed(ctx, all, dir)
		h.named.Inodes, h.takes = 400000, 40*time.Second
		for i := range 40 {
			if total, late := h.renewed(ctx, all, dir); total.Bytes > 17*gibibyte || total.Bytes < 16*gibibyte {
				t.Fatalf("look %d: %+v counts, late %v", i, total, late)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// TestWhatIsHeldCountsThoughItsVolumeIsNotMeasuredAnew: a figure of before has nothing of it.
func TestWhatIsHeldCountsThoughItsVolumeIsNotMeasuredAnew(t *testing.T) {
	h := &history{named: Tree{Bytes: 6 * gibibyte, Inodes: 1000000}, takes: 28 * time.Second}
	h.lives(t, func(ctx context.Context, all *Trees, dir Directory) {
		for range 12 {
			all.Get(ctx, []Directory{dir})
			time.Sleep(countPeriod)
		}
		h.takes, h.held = 15*time.Minute, Tree{Bytes: 20 * gibibyte, Inodes: 1} // longer than any walk may take
		for i := range 3 * 60 {
			got := all.Get(ctx, []Directory{dir})[dir.Path]
			if total := h.total(all, dir, got); total.Bytes < 20*gibibyte {
				t.Fatalf("%s: %+v counts", time.Duration(i)*countPeriod, total)
			}
			time.Sleep(countPeriod)
		}
	})
}

// TestWhatIsTakenFromTheCountAndThenLosesItsNameCounts, though count and walk agree.
func TestWhatIsTakenFromTheCountAndThenLosesItsNameCounts(t *testing.T) {
	h := &history{named: Tree{Bytes: 1 << 20, Inodes: 10}, takes: 10 * time.Millisecond}
	h.lives(t, func(ctx context.Context, all *Trees, dir Directory) {
		h.renewed(ctx, all, dir)
		h.held = Tree{Bytes: 20 * gibibyte, Inodes: 1}
		h.heldOut = h.held
		for i := range 3 {
			if total, late := h.renewed(ctx, all, dir); total.Bytes < 20*gibibyte || late {
				t.Errorf("look %d: %+v counts, late %v", i, total, late)
			}
			time.Sleep(20 * time.Minute)
		}
	})
}
