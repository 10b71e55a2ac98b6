package disk

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func config() TreesConfig {
	return TreesConfig{Period: time.Minute, Deadline: 10 * time.Second, Forget: 5 * time.Minute}
}

func TestDirectoriesAreMeasuredOnlyWhenAskedForAndNotMoreOftenThanThePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trees := NewTrees(config())
		calls := 0
		trees.measureOne = func(context.Context, Directory, func(Measured)) (Measured, error) {
			calls++
			return Measured{Tree: Tree{Bytes: uint64(calls)}}, nil
		}
		go trees.Run(t.Context()) //nolint:errcheck // Always nil.
		time.Sleep(time.Hour)
		if calls != 0 {
			t.Fatalf("%d measurements though nobody asked", calls)
		}
		asked := []Directory{{Path: "/a"}}
		for range 10 {
			if got := trees.Get(t.Context(), asked)["/a"].Bytes; got != 1 {
				t.Fatalf("bytes %d; want those of the first measurement", got)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		trees.Get(t.Context(), asked)
		synctest.Wait()
		if got := trees.Get(t.Context(), asked)["/a"].Bytes; got != 2 || calls != 2 {
			t.Errorf("bytes %d after %d measurements; want 2, 2", got, calls)
		}
	})
}

func TestAHungDirectoryHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trees := NewTrees(config())
		hang := make(chan struct{})
		trees.measureOne = func(_ context.Context, d Directory, _ func(Measured)) (Measured, error) {
			if d.Path == "/dead" {
				<-hang
			}
			return Measured{Tree: Tree{Bytes: 7}}, nil
		}
		go trees.Run(t.Context()) //nolint:errcheck // Always nil.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got := trees.Get(ctx, []Directory{{Path: "/dead"}, {Path: "/alive"}}); len(got) != 0 {
			t.Errorf("%v was measured within a second of a hang", got)
		}
		time.Sleep(time.Minute)
		if got := trees.Get(t.Context(), []Directory{{Path: "/alive"}})["/alive"].Bytes; got != 7 {
			t.Errorf("bytes %d of the directory behind the hung one; want 7", got)
		}
		close(hang)
	})
}

// TestOneNamespaceWhoseTreesTakeLongHoldsUpNoOther: who makes pods may lay down as many
// files in as many volumes as he likes.
func TestOneNamespaceWhoseTreesTakeLongHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trees := NewTrees(config())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var walked atomic.Int32
		trees.measureOne = func(ctx context.Context, d Directory, _ func(Measured)) (Measured, error) {
			if d.Namespace == "theirs" {
				walked.Add(1)
				<-ctx.Done()
				return Measured{}, ctx.Err()
			}
			time.Sleep(10 * time.Millisecond)
			return Measured{Time: time.Now()}, nil
		}
		go trees.Run(ctx) //nolint:errcheck // Always nil.
		var theirs, ours []Directory
		for i := range 100 {
			theirs = append(theirs, Directory{Path: fmt.Sprint("/theirs/", i), Namespace: "theirs"})
		}
		for i := range 20 {
			ours = append(ours, Directory{Path: fmt.Sprint("/ours/", i), Namespace: "ours"})
		}
		get := func(dirs []Directory) map[string]Measured {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return trees.Get(ctx, dirs)
		}
		for i := range 120 { // half an hour
			get(theirs)
			time.Sleep(14 * time.Second)
			got := get(ours)
			for _, dir := range ours {
				if old := time.Since(got[dir.Path].Time); i >= 4 && old > trees.cfg.Period+2*trees.cfg.Deadline+30*time.Second {
					t.Fatalf("%s was measured %s ago", dir.Path, old)
				}
			}
		}
		if n := walked.Load(); n < 100 {
			t.Errorf("theirs were walked %d times: nobody else needed the time", n)
		}
		cancel()
		synctest.Wait()
	})
}

func TestTreesThatAreRenewedAreMeasuredAgainBeforeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		size := uint64(1)
		trees := NewTrees(TreesConfig{Period: time.Hour, Deadline: time.Minute, Forget: time.Hour})
		trees.measureOne = func(_ context.Context, d Directory, _ func(Measured)) (Measured, error) {
			now, bytes := time.Now(), size
			time.Sleep(400 * time.Millisecond)
			if d.Path == "broken" {
				return Measured{}, errors.New("no such directory")
			}
			return Measured{Tree: Tree{Bytes: bytes}, Time: now}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = trees.Run(ctx) }()
		dirs := []Directory{{Path: "a"}, {Path: "b"}, {Path: "broken"}}
		trees.Get(ctx, dirs)
		size = 2
		if got := trees.Get(ctx, dirs)["b"].Bytes; got != 1 {
			t.Errorf("%d, though it is not due", got)
		}
		time.Sleep(time.Millisecond)
		if got, _ := trees.Renew(ctx, dirs, time.Now(), true); got["a"].Bytes != 2 || got["b"].Bytes != 2 {
			t.Errorf("%+v", got)
		}
		size = 3
		time.Sleep(time.Millisecond)
		short, cancelShort := context.WithTimeout(ctx, 600*time.Millisecond)
		defer cancelShort()
		if got, late := trees.Renew(short, dirs, time.Now(), true); len(late) != 2 || late["a"] || got["a"].Bytes != 3 || got["b"].Bytes != 2 {
			t.Errorf("who has no time gets what there is: %+v", got)
		}
		cancel()
		<-done
	})
}
