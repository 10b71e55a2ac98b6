package disk

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// twice is for how many minutes, while somebody asks each minute, a pod that never had more
// than 2020 in its two directories has far more by figures that are added up.
func (l *large) twice(ctx context.Context, minutes int, dirs [2]string, all []Directory) (twice int) {
	for range minutes {
		got := l.pass(ctx, time.Minute, all...)
		if a, b := got[dirs[0]], got[dirs[1]]; !a.Partly && !b.Partly && a.Bytes+b.Bytes > 2500 {
			twice++
		}
	}
	return twice
}

// Others' directories have their turns, too, and so it takes longer than two walks until what
// was removed is known.
func TestWhatIsMovedBetweenTwoThatTakeLongIsNotCountedTwiceMeanwhile(t *testing.T) {
	const takes = 8 * time.Minute
	of := map[string]time.Duration{"a": takes, "b": takes}
	dirs := []Directory{{Path: "a", Namespace: "ours"}, {Path: "b", Namespace: "ours"}}
	for i := range 3 {
		path := fmt.Sprint("theirs", i)
		of[path] = 24 * time.Hour
		dirs = append(dirs, Directory{Path: path, Namespace: path})
	}
	inLarge(t, of, func(ctx context.Context, l *large) {
		l.set("a", takes, 2000)
		l.set("b", takes, 20)
		l.pass(ctx, 2*time.Hour, dirs...)
		l.set("a", takes, 20)
		l.set("b", takes, 2000)
		if n := l.twice(ctx, 60, [2]string{"a", "b"}, dirs); n > 0 {
			t.Errorf("for %d minutes the pod has twice as much", n)
		}
	})
}

// A pod clears a directory that takes long, and a minute later writes as much into another. It
// does so again and again, each time at another moment between two walks.
func TestWhatWasRemovedIsNoReasonAgainstWhatIsWrittenElsewhereLater(t *testing.T) {
	dirs := []Directory{{Path: "cache", Namespace: "ours"}, {Path: "out", Namespace: "ours"}}
	for _, takes := range []time.Duration{40 * time.Second, 3 * time.Minute, 8 * time.Minute} {
		inLarge(t, map[string]time.Duration{}, func(ctx context.Context, l *large) {
			for range 20 {
				l.set("cache", takes, 2000)
				l.set("out", time.Second, 20)
				l.pass(ctx, 47*time.Minute, dirs...)
				l.set("cache", takes, 20)
				l.pass(ctx, time.Minute, dirs...)
				l.set("out", time.Second, 2000)
				// What is counted in no time is a minute old, too, and as much as its walk takes.
				if n := l.twice(ctx, 60, [2]string{"cache", "out"}, dirs); n > 2 {
					t.Errorf("a walk takes %s: for %d minutes the pod has twice as much", takes, n)
				}
				l.set("out", time.Second, 20)
				l.pass(ctx, 5*time.Minute, dirs...)
			}
		})
	}
}

// Else a pod with ten of these had ten times as much as it may.
func TestWhatIsDeeperThanIsFollowedCountsWithTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trees := NewTrees(config())
		trees.measureOne = func(context.Context, Directory, func(Measured)) (Measured, error) {
			return Measured{Time: time.Now(), Tree: Tree{Bytes: 7, Deeper: true}}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = trees.Run(ctx) }()
		for range 3 {
			got := trees.Get(ctx, []Directory{{Path: "d"}})["d"]
			if got.Bytes != 7 || got.Partly {
				t.Errorf("%+v, counted %s ago", got, time.Since(got.Time))
			}
			time.Sleep(time.Hour)
		}
		cancel()
		<-done
	})
}
