package watch

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func eq(a, b int) bool { return a == b }

// mirror is what a subscriber knows.
type mirror map[string]int

func (m mirror) apply(f Frame[string, int]) {
	if f.Snapshot {
		clear(m)
	}
	maps.Copy(m, f.Changed)
	for _, k := range f.Removed {
		delete(m, k)
	}
}

func TestTheFirstFrameIsEverythingAndComesAtOnce(t *testing.T) {
	s := NewStore[string](7, eq)
	sub := s.Subscribe(t.Context())
	s.Set("a", 1)
	f, err := sub.Next(t.Context())
	if err != nil || !f.Snapshot || f.Epoch != 7 || f.Revision != 1 || f.Changed["a"] != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	empty, err := NewStore[string](7, eq).Subscribe(t.Context()).Next(t.Context())
	if err != nil || !empty.Snapshot || len(empty.Changed) != 0 {
		t.Fatalf("an empty store still sends a snapshot: %+v, %v", empty, err)
	}
}

func TestASlowSubscriberSeesTheNewestStateInOneFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore[string](1, eq)
		s.Set("gone", 1)
		sub := s.Subscribe(t.Context())
		m := mirror{}
		f, _ := sub.Next(t.Context())
		m.apply(f)
		for i := range 1000 {
			s.Set("a", i)
		}
		s.Delete("gone")
		f, err := sub.Next(t.Context())
		if err != nil || f.Revision != 2 || f.Changed["a"] != 999 || len(f.Removed) != 1 {
			t.Fatalf("%+v, %v", f, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := sub.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("nothing changed, yet Next = %v", err)
		}
	})
}

func TestASetThatChangesNothingWakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore[string](1, eq)
		s.Set("a", 1)
		sub := s.Subscribe(t.Context())
		sub.Next(t.Context())
		if s.Set("a", 1) || s.Delete("b") {
			t.Fatal("no change was reported as one")
		}
		s.Replace(map[string]int{"a": 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if f, err := sub.Next(ctx); err == nil {
			t.Fatalf("woken with %+v", f)
		}
	})
}

func TestNextEndsWithTheSubscriptionsContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := NewStore[string](1, eq)
	ctx, cancel := context.WithCancel(context.Background())
	sub := s.Subscribe(ctx)
	sub.Next(ctx)
	cancel()
	if _, err := sub.Next(context.Background()); !errors.Is(err, ErrClosed) {
		t.Fatalf("Next = %v", err)
	}
	sub.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.subs) != 0 {
		t.Fatal("the store still holds the subscription")
	}
}

func TestSubscribersConvergeUnderRandomChanges(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			s := NewStore[string](seed, eq)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			mirrors := make([]mirror, 4)
			for i := range mirrors {
				mirrors[i] = mirror{}
				delay := time.Duration(rng.IntN(30)) * time.Millisecond
				start := time.Duration(rng.IntN(100)) * time.Millisecond
				wg.Go(func() {
					time.Sleep(start)
					sub := s.Subscribe(ctx)
					for want := uint64(1); ; want++ {
						f, err := sub.Next(ctx)
						if err != nil {
							return
						}
						if f.Revision != want || f.Snapshot != (want == 1) {
							t.Errorf("seed %d: revision %d snapshot %v, want %d", seed, f.Revision, f.Snapshot, want)
						}
						mirrors[i].apply(f)
						time.Sleep(delay)
					}
				})
			}
			for range 200 {
				change(rng, s)
				if rng.IntN(4) == 0 {
					time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			want := s.Snapshot()
			cancel()
			wg.Wait()
			for i, m := range mirrors {
				if !maps.Equal(m, want) {
					t.Fatalf("seed %d: subscriber %d has %v, the store %v", seed, i, m, want)
				}
			}
		})
	}
}

func change(rng *rand.Rand, s *Store[string, int]) {
	key := func() string { return string(rune('a' + rng.IntN(8))) }
	switch rng.IntN(10) {
	case 0:
		s.Replace(map[string]int{key(): rng.IntN(5), key(): rng.IntN(5)})
	case 1, 2, 3:
		s.Delete(key())
	default:
		s.Set(key(), rng.IntN(5))
	}
}

// Under the race detector: a context that is over ends a subscription beside
// what makes it.
func TestASubscriptionMayEndWhileItIsMade(t *testing.T) {
	store := NewStore[string, int](1, eq)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		sub := store.Subscribe(ctx)
		var err error
		for err == nil { // it may show what there is first
			_, err = sub.Next(t.Context())
		}
		if !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		sub.Close()
	}
}
