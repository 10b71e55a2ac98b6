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

// volume is one of a pod's two: stray is held open in it where nobody knows the mount, the rest is
// as in history.
type volume struct {
	named, held, stray, foreign, ledOut, heldOut Tree
	takes                                        time.Duration
	deeper                                       bool
}

func (v *volume) count() Tree {
	return plus(minus(v.named, v.ledOut), plus(v.foreign, minus(plus(v.held, v.stray), v.heldOut)))
}

func (v *volume) has() Tree { return plus(v.named, plus(v.held, v.stray)) }

// walk sees what is named when it begins, at the pace of then.
func (l *lived) walk(ctx context.Context, d Directory, soFar func(Measured)) (Measured, error) {
	l.mu.Lock()
	v := *l.volumes[d.Path]
	l.mu.Unlock()
	began, named, takes := time.Now(), v.named, v.takes
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
	named.Deeper = v.deeper
	return Measured{Tree: named, Time: began}, nil
}

// lived is a pod with two volumes, which trees measure. What it holds open is known for five
// seconds, as the collector has it.
type lived struct {
	mu      sync.Mutex
	r       *rand.Rand
	volumes map[string]*volume
	all     *Trees
	gate    bool
	podsync error
	known   map[string]Tree
	until   time.Time
	stop    func()
}

func (l *lived) held(_ context.Context, v Volume) Tree {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.until) {
		for path, v := range l.volumes {
			l.known[path] = v.held
		}
		l.until = time.Now().Add(5 * time.Second)
	}
	return l.known[v.Name]
}

func (l *lived) start(ctx context.Context) {
	l.known, l.until = map[string]Tree{}, time.Time{}
	l.all = NewTrees(TreesConfig{
		Period: time.Minute, Deadline: 30 * time.Second, Forget: time.Hour, Held: l.held,
		Count: func(_ context.Context, v Volume) (Tree, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.volumes[v.Name].count(), l.podsync
		},
	})
	l.all.measureOne = l.walk
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = l.all.Run(ctx) }()
	l.stop = func() { cancel(); <-done }
}

func (l *lived) directories() (out []Directory) {
	for path := range l.volumes {
		d := Directory{Path: path}
		if l.gate {
			d.Counted = Volume{PodUID: "u", Name: path}
		}
		out = append(out, d)
	}
	return out
}

func (l *lived) has() (out Tree) {
	for _, v := range l.volumes {
		out = plus(out, v.has())
	}
	return out
}

// goesOn does anything that pods, attackers, podsync and stats do.
func (l *lived) goesOn(ctx context.Context, v *volume) {
	r := l.r
	l.mu.Lock()
	defer l.mu.Unlock()
	size := func() Tree { return Tree{Bytes: r.Uint64N(4) * r.Uint64N(1<<32), Inodes: r.Uint64N(4) * r.Uint64N(50)} }
	top := Tree{Bytes: 4096, Inodes: 1}
	switch r.IntN(15) {
	case 0:
		v.named = plus(top, size())
	case 1:
		v.held = size()
	case 2:
		v.foreign = size()
	case 3:
		v.ledOut = size()
	case 4:
		v.heldOut = size()
	case 5:
		l.podsync = []error{nil, nil, ErrAway, errors.New("not found")}[r.IntN(4)]
	case 6:
		l.pause(func() { time.Sleep(time.Duration(r.IntN(1200)) * time.Second) })
	case 7, 8:
		l.pause(func() {
			l.all.Get(ctx, l.directories())
			time.Sleep(time.Duration(r.IntN(15000)) * time.Millisecond)
		})
	case 9:
		v.takes = []time.Duration{0, 20 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second, 40 * time.Second}[r.IntN(5)]
	case 10: // It loses its name.
		v.held, v.named = plus(v.held, minus(v.named, top)), top
	case 11: // It is closed, and as much is written.
		v.named, v.held = plus(v.named, v.held), Tree{}
	case 12:
		v.stray = size()
	case 13:
		l.gate = !l.gate
	case 14:
		if v.deeper = r.IntN(3) == 0; r.IntN(2) == 0 {
			l.pause(func() { l.stop(); l.start(ctx) })
		}
	}
}

// pause does something without the lock.
func (l *lived) pause(do func()) {
	l.mu.Unlock()
	defer l.mu.Lock()
	do()
}

// TestWhatAPodHasInItsVolumesCountsOnceForWhoMayEndIt: figures that were measured anew, with all
// that is held open then, are what the pod had at some time since they were asked for, be walks
// slow, stats and the gate switched, and others at work.
func TestWhatAPodHasInItsVolumesCountsOnceForWhoMayEndIt(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			l := &lived{r: rand.New(rand.NewPCG(seed, 2811)), gate: true, volumes: map[string]*volume{}}
			pair := []*volume{{}, {}}
			for _, v := range pair {
				v.named, v.takes = Tree{Bytes: 1 << 20, Inodes: 5}, 20*time.Millisecond
				l.volumes[t.TempDir()] = v
			}
			l.start(t.Context())
			defer func() { l.stop() }()
			for step := range 60 {
				l.goesOn(t.Context(), pair[l.r.IntN(2)])
				if l.r.IntN(2) == 0 {
					continue
				}
				time.Sleep(time.Millisecond)
				was := l.has()
				limited, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				got, late := l.all.Renew(limited, l.directories(), time.Now(), true)
				cancel()
				total, slow := Tree{}, false
				for path, v := range l.volumes {
					total = plus(total, plus(got[path].Tree, plus(v.held, v.stray)))
					slow = slow || late[path]
				}
				slack := 256<<10 + was.Bytes/30
				if !slow && (total.Bytes > was.Bytes+slack || total.Bytes+slack < was.Bytes) {
					t.Fatalf("seed %d, step %d: %+v counts, and it has %+v: %+v, %+v", seed, step, total, was, *pair[0], *pair[1])
				}
			}
		})
	}
}

// A directory that took long (a cold cache) is walked whole in no time, while its long walk goes on
// with what it has counted before.
func TestALongWalkUnderWayIsInNoFigureThatWasWalkedWholeSince(t *testing.T) {
	h := &history{named: Tree{Bytes: 10 * gibibyte, Inodes: 10}, takes: time.Minute}
	h.lives(t, func(ctx context.Context, all *Trees, dir Directory) {
		dir.Counted = Volume{}
		for range 4 { // Until the deadline, and then 40 s of the long walk.
			all.Get(ctx, []Directory{dir})
			time.Sleep(10 * time.Second)
		}
		h.set(func() {
			h.named, h.held, h.takes = Tree{Bytes: 4096, Inodes: 1}, Tree{Bytes: 10 * gibibyte, Inodes: 1}, 20*time.Millisecond
		})
		if total, late := h.renewed(ctx, all, dir); total.Bytes > 11*gibibyte || late {
			t.Errorf("%d GiB count of 10, late %v", total.Bytes/gibibyte, late)
		}
	})
}

// What has lost its name since a long walk passed it would count twice.
func TestALongWalkThatBeganBeforeIsNoProofForWhoIsUrgent(t *testing.T) {
	h := &history{named: Tree{Bytes: 10 * gibibyte, Inodes: 100}, takes: 40 * time.Second}
	h.lives(t, func(ctx context.Context, all *Trees, dir Directory) {
		all.Get(ctx, []Directory{dir}) // 30 s, until the deadline; then the long walk begins.
		time.Sleep(39800 * time.Millisecond)
		h.set(func() { h.named, h.held = Tree{Bytes: 4096, Inodes: 1}, Tree{Bytes: 10 * gibibyte, Inodes: 99} })
		h.renewed(ctx, all, dir)
		for range 30 {
			m := all.Get(ctx, []Directory{dir})[dir.Path]
			if last, _ := all.Last(dir.Path); last.Counted && h.total(all, dir, m).Bytes > 11*gibibyte {
				t.Errorf("%d GiB count of 10: %+v", h.total(all, dir, m).Bytes/gibibyte, m)
			}
			time.Sleep(time.Second)
		}
	})
}

// What a walk under way has counted has nothing of what is held.
func TestWhatIsHeldCountsBesideWhatAWalkUnderWayHasCounted(t *testing.T) {
	h := &history{named: Tree{Bytes: 1 << 20, Inodes: 5}, held: Tree{Bytes: 5 * gibibyte, Inodes: 2}, takes: 20 * time.Millisecond}
	h.lives(t, func(ctx context.Context, all *Trees, dir Directory) {
		all.Get(ctx, []Directory{dir})
		h.set(func() { h.named, h.takes = Tree{Bytes: 20 * gibibyte, Inodes: 100}, 10*time.Minute })
		most := Tree{}
		for range 60 {
			time.Sleep(countPeriod)
			m := all.Get(ctx, []Directory{dir})[dir.Path]
			total := h.total(all, dir, m)
			if total.Bytes < 5*gibibyte || m.Bytes > 6*gibibyte && total.Bytes < m.Bytes+5*gibibyte {
				t.Fatalf("%+v counts, %+v is the figure", total, m)
			}
			most = Tree{Bytes: max(most.Bytes, m.Bytes)}
		}
		if most.Bytes < 15*gibibyte {
			t.Errorf("no walk was under way: %+v", most)
		}
	})
}

// A walk that was cut meanwhile is no other that was faster.
func TestALongWalkProvesWhatIsCountedThoughOthersWereCutMeanwhile(t *testing.T) {
	h := &history{named: Tree{Bytes: 6 * gibibyte, Inodes: 1000000}, takes: 400 * time.Second}
	h.lives(t, func(ctx context.Context, all *Trees, dir Directory) {
		believed := 0
		for range 360 {
			all.Get(ctx, []Directory{dir})
			if last, _ := all.Last(dir.Path); last.Counted {
				believed++
			}
			time.Sleep(countPeriod)
		}
		if believed < 240 {
			t.Errorf("what is counted was believed %d of 360 times", believed)
		}
	})
}

// Each question has a walk in its turn, which is cut: whoever waits for one that is whole has the
// long one.
func TestADirectoryThatTakesLongIsMeasuredOnceItsLongWalkHasEnded(t *testing.T) {
	h := &history{named: Tree{Bytes: 6 * gibibyte, Inodes: 1000000}, takes: 100 * time.Second}
	h.lives(t, func(ctx context.Context, all *Trees, dir Directory) {
		for _, counted := range []Volume{dir.Counted, {}} {
			dir.Counted = counted
			for range 20 {
				all.Get(ctx, []Directory{dir})
				time.Sleep(time.Minute)
			}
			since, lates := time.Now(), 0
			for range 10 {
				limited, cancel := context.WithTimeout(ctx, 3*time.Second)
				have, late := all.Renew(limited, []Directory{dir}, since, true)
				cancel()
				if late[dir.Path] {
					lates++
				}
				if counted == (Volume{}) && !have[dir.Path].Slow {
					t.Errorf("it is not said to take long: %+v", have[dir.Path])
				}
				time.Sleep(time.Minute)
			}
			if lates == 0 || lates > 5 {
				t.Errorf("counted %+v: late %d of 10 times", counted, lates)
			}
		}
	})
}

// Else a pod that is asked about again and again keeps all that takes long from being walked.
func TestWhoIsNotPressingEndsNobodysWalk(t *testing.T) {
	for _, pressing := range []bool{true, false} {
		h := &history{named: Tree{Bytes: 6 * gibibyte, Inodes: 1000000}, takes: 20 * time.Second}
		h.lives(t, func(ctx context.Context, all *Trees, dir Directory) {
			dir.Counted = Volume{}
			small, walked := Directory{Path: t.TempDir(), Namespace: "other"}, 0
			all.measureOne = func(ctx context.Context, d Directory, soFar func(Measured)) (Measured, error) {
				if d.Path == small.Path {
					return Measured{Tree: Tree{Bytes: 1, Inodes: 1}, Time: time.Now()}, nil
				}
				m, err := h.walk(ctx, d, soFar)
				if err == nil {
					walked++
				}
				return m, err
			}
			for range 120 {
				short, cancel := context.WithTimeout(ctx, time.Millisecond)
				all.Get(short, []Directory{dir, small})
				cancel()
				limited, cancel := context.WithTimeout(ctx, 3*time.Second)
				all.Renew(limited, []Directory{small}, time.Now(), pressing)
				cancel()
				time.Sleep(10 * time.Second)
			}
			if (walked == 0) != pressing {
				t.Errorf("pressing %v: the other was walked %d times", pressing, walked)
			}
		})
	}
}
