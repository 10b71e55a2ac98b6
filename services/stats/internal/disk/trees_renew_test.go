package disk

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slow are trees that take so long each, by path, and how often each was begun.
type slow struct {
	*Trees
	takes map[string]time.Duration
	mu    sync.Mutex
	begun map[string]int
}

// inSlow runs test beside trees of which one may take ten seconds.
func inSlow(t *testing.T, takes map[string]time.Duration, test func(ctx context.Context, s *slow)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Trees: NewTrees(TreesConfig{Period: time.Minute, Deadline: 10 * time.Second, Forget: time.Hour}), takes: takes, begun: map[string]int{}}
		s.measureOne = func(ctx context.Context, d Directory, soFar func(Measured)) (Measured, error) {
			s.mu.Lock()
			s.begun[d.Path]++
			s.mu.Unlock()
			m := Measured{Time: time.Now(), Tree: Tree{Bytes: 1}}
			soFar(m)
			select {
			case <-ctx.Done():
				return m, ctx.Err()
			case <-time.After(s.takes[d.Path]):
			}
			m.Bytes = 100
			return m, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx) }()
		time.Sleep(time.Millisecond)
		test(ctx, s)
		cancel()
		<-done
	})
}

// within renews for so long.
func (s *slow) within(ctx context.Context, d time.Duration, since time.Time, dirs ...Directory) (map[string]Measured, map[string]bool) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return s.Renew(ctx, dirs, since, true)
}

func TestATreeThatTakesLongKeepsUpNoOtherThatIsRenewed(t *testing.T) {
	inSlow(t, map[string]time.Duration{"long": 8 * time.Second, "short": 100 * time.Millisecond}, func(ctx context.Context, s *slow) {
		since := time.Now()
		dirs := []Directory{{Path: "long"}, {Path: "short"}}
		got, late := s.within(ctx, time.Second, since, dirs...)
		if got["short"].Bytes != 100 || late["short"] || !late["long"] || got["long"].Bytes != 1 {
			t.Errorf("in a second %+v, %v", got, late)
		}
		got, late = s.within(ctx, 10*time.Second, since, dirs...)
		if got["long"].Bytes != 100 || len(late) != 0 {
			t.Errorf("then %+v, %v", got, late)
		}
		if s.begun["short"] != 1 || s.begun["long"] != 2 {
			t.Errorf("they were walked %v times", s.begun)
		}
	})
}

// Else one that fills a directory with millions of files is always under way, and nobody
// else is known when a disk is short.
func TestWhatIsUnderWayIsCutShortForWhatIsRenewedAndGoesOnLater(t *testing.T) {
	inSlow(t, map[string]time.Duration{"long": 8 * time.Second, "short": 100 * time.Millisecond}, func(ctx context.Context, s *slow) {
		get, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		s.Get(get, []Directory{{Path: "long"}})
		if got, late := s.within(ctx, time.Second, time.Now(), Directory{Path: "short"}); got["short"].Bytes != 100 || len(late) != 0 {
			t.Errorf("%+v, %v", got, late)
		}
		time.Sleep(9 * time.Second)
		if got := s.have([]Directory{{Path: "long"}})["long"]; got.Bytes != 100 || s.begun["long"] != 2 {
			t.Errorf("%+v, begun %v", got, s.begun)
		}
	})
}

func TestWhatWasMeasuredSinceThenIsNotMeasuredAgain(t *testing.T) {
	inSlow(t, map[string]time.Duration{}, func(ctx context.Context, s *slow) {
		since := time.Now()
		s.Get(ctx, []Directory{{Path: "a"}})
		time.Sleep(time.Second)
		if got, late := s.within(ctx, time.Second, since, Directory{Path: "a"}); got["a"].Time.Before(since) || len(late) != 0 || s.begun["a"] != 1 {
			t.Errorf("%+v, %v, begun %v", got, late, s.begun)
		}
		if _, late := s.within(ctx, time.Second, time.Now(), Directory{Path: "a"}); len(late) != 0 || s.begun["a"] != 2 {
			t.Errorf("%v, begun %v", late, s.begun)
		}
	})
}

func TestATreeThatHasNoEndIsLateForGood(t *testing.T) {
	inSlow(t, map[string]time.Duration{"endless": time.Hour}, func(ctx context.Context, s *slow) {
		since := time.Now()
		got, late := s.within(ctx, time.Minute, since, Directory{Path: "endless"})
		if got["endless"].Bytes != 1 || !late["endless"] || time.Since(since) > 11*time.Second {
			t.Errorf("%+v, %v after %s", got, late, time.Since(since))
		}
	})
}

func TestAHungTreeKeepsTheOthersThatAreRenewedUpForASecond(t *testing.T) {
	inSlow(t, map[string]time.Duration{}, func(ctx context.Context, s *slow) {
		hang := make(chan struct{})
		measure := s.measureOne
		s.measureOne = func(ctx context.Context, d Directory, soFar func(Measured)) (Measured, error) {
			if d.Path == "dead" {
				<-hang
			}
			return measure(ctx, d, soFar)
		}
		for range 2 {
			got, late := s.within(ctx, 1100*time.Millisecond, time.Now(), Directory{Path: "dead"}, Directory{Path: "alive"})
			if got["alive"].Bytes != 100 || !late["dead"] || late["alive"] {
				t.Errorf("%+v, %v", got, late)
			}
		}
		close(hang)
		time.Sleep(time.Second)
	})
}

func TestNoNamespaceIsKeptUpByTheManyTreesOfAnother(t *testing.T) {
	takes := map[string]time.Duration{"ours": 100 * time.Millisecond}
	var dirs []Directory
	for i := range 50 {
		path := fmt.Sprint("theirs", i)
		takes[path] = time.Hour
		dirs = append(dirs, Directory{Path: path, Namespace: "a"})
	}
	inSlow(t, takes, func(ctx context.Context, s *slow) {
		got, late := s.within(ctx, time.Second, time.Now(), append(dirs, Directory{Path: "ours", Namespace: "b"})...)
		if late["ours"] || got["ours"].Bytes != 100 {
			t.Errorf("%+v, %v", got["ours"], late["ours"])
		}
	})
}

func TestAMeasurementThatBeginsWhileSomebodyWaitsForAnotherIsCutShortToo(t *testing.T) {
	trees := NewTrees(TreesConfig{})
	began, ended := context.WithCancel(t.Context())
	trees.cutBy(ended)
	if began.Err() != nil {
		t.Fatal("it is cut short though nobody waits")
	}
	trees.cutBy(nil)
	trees.renew([]Directory{{Path: "/other"}}, time.Now(), true)
	trees.cutBy(ended)
	if began.Err() == nil {
		t.Error("who cannot wait waits for it")
	}
}

// It is measured as well as it can be, but may have more.
func TestATreeThatIsDeeperThanIsFollowedIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewTrees(TreesConfig{Period: time.Minute, Deadline: 10 * time.Second, Forget: time.Hour})
		deeper := true
		s.measureOne = func(context.Context, Directory, func(Measured)) (Measured, error) {
			return Measured{Time: time.Now(), Tree: Tree{Bytes: 7, Deeper: deeper}}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx) }()
		for _, deeper = range []bool{true, false} {
			if got, late := s.Renew(ctx, []Directory{{Path: "d"}}, time.Now(), true); got["d"].Bytes != 7 || late["d"] != deeper {
				t.Errorf("%+v, late %v", got, late)
			}
			time.Sleep(time.Second)
		}
		cancel()
		<-done
	})
}

// A disk is short, and a mount of some pod's hangs: its urgent turn is never over.
func TestADirectoryThatNeverAnswersHasNoWalkEndedAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var walks atomic.Int32
		trees := NewTrees(TreesConfig{Period: time.Minute, Deadline: 30 * time.Second, Forget: time.Hour})
		trees.measureOne = func(ctx context.Context, d Directory, _ func(Measured)) (Measured, error) {
			if d.Path == "hung" {
				<-release
				return Measured{}, nil
			}
			walks.Add(1)
			began := time.Now()
			select {
			case <-ctx.Done():
				return Measured{Tree: Tree{Bytes: 5, Inodes: 5}, Time: began}, ctx.Err()
			case <-time.After(5 * time.Second):
			}
			return Measured{Tree: Tree{Bytes: 100, Inodes: 100}, Time: began}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = trees.Run(ctx) }()
		dirs := []Directory{{Path: "hung", Namespace: "x"}, {Path: "large", Namespace: "n"}}
		limited, end := context.WithTimeout(ctx, 3*time.Second)
		trees.Get(limited, dirs)
		end()
		time.Sleep(5 * time.Minute)
		since, began, late := time.Now(), walks.Load(), map[string]bool{"large": true}
		for late["large"] && time.Since(since) < 2*time.Minute {
			limited, end := context.WithTimeout(ctx, 3*time.Second)
			_, late = trees.Renew(limited, dirs, since, true)
			end()
		}
		if took := time.Since(since); took > 30*time.Second || walks.Load()-began > 10 {
			t.Errorf("the other is measured after %s, in %d walks", took, walks.Load()-began)
		}
		close(release)
		cancel()
		<-done
	})
}

// 160 directories of one namespace, of two seconds each, are renewed once a minute, as those of
// suspects are.
func TestWhatIsRenewedAndNotPressingLeavesOthersTheirTurns(t *testing.T) {
	takes := map[string]time.Duration{"other": 5 * time.Millisecond, "beside": 5 * time.Millisecond}
	var suspects []Directory
	for i := range 160 {
		d := Directory{Path: fmt.Sprint("suspect-", i), Namespace: "greedy"}
		suspects, takes[d.Path] = append(suspects, d), 2*time.Second
	}
	inSlow(t, takes, func(ctx context.Context, s *slow) {
		all := append([]Directory{{Path: "other", Namespace: "other"}, {Path: "beside", Namespace: "greedy"}}, suspects...)
		for range 30 {
			for range 6 {
				get, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
				s.Get(get, all)
				cancel()
				time.Sleep(9 * time.Second)
			}
			renew, cancel := context.WithTimeout(ctx, 3*time.Second)
			s.Renew(renew, suspects, time.Now(), false)
			cancel()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.begun["other"] < 20 {
			t.Errorf("another namespace's was measured %d times in half an hour", s.begun["other"])
		}
		for _, d := range all[1:] {
			if s.begun[d.Path] < 2 || s.entries[d.Path].walked.IsZero() {
				t.Errorf("%s: measured %d times, whole at %v", d.Path, s.begun[d.Path], s.entries[d.Path].walked)
			}
		}
	})
}
