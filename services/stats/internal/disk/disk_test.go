package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAWalkCountsHardLinksOnceAndFollowsNoLink(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	big := make([]byte, 1<<20)
	for _, file := range []string{filepath.Join(dir, "a", "one"), filepath.Join(outside, "other")} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, big, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Link(filepath.Join(dir, "a", "one"), filepath.Join(dir, "two")), os.Symlink(outside, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	got, err := Walk(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.Inodes != 4 { // dir, a, one (= two), link
		t.Errorf("inodes %d; want 4", got.Inodes)
	}
	if got.Bytes < 1<<20 || got.Bytes > 1<<20+64<<10 {
		t.Errorf("bytes %d; want little more than 1 MiB", got.Bytes)
	}
}

func TestAWalkEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Walk(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v; want context.Canceled", err)
	}
}

func config() TreesConfig {
	return TreesConfig{Period: time.Minute, Deadline: 10 * time.Second, Forget: 5 * time.Minute}
}

func TestDirectoriesAreMeasuredOnlyWhenAskedForAndNotMoreOftenThanThePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trees := NewTrees(config())
		calls := 0
		trees.measureOne = func(context.Context, Directory) (Measured, error) {
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
		trees.measureOne = func(_ context.Context, d Directory) (Measured, error) {
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
		trees.measureOne = func(ctx context.Context, d Directory) (Measured, error) {
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

func TestTheRuntimesAccountIsSharedAndRenewedBehindTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		r := NewRuntime(time.Minute, func(context.Context) (RuntimeUsage, error) {
			calls++
			time.Sleep(time.Second)
			return RuntimeUsage{Images: []Usage{{Bytes: uint64(calls)}}}, nil
		})
		if got := r.Get(t.Context(), 10*time.Second).Images[0].Bytes; got != 1 {
			t.Fatalf("bytes %d; want the first answer", got)
		}
		time.Sleep(20 * time.Second)
		start := time.Now()
		if got := r.Get(t.Context(), 10*time.Second).Images[0].Bytes; got != 1 || time.Since(start) != 0 {
			t.Errorf("bytes %d after %s; want the old answer at once", got, time.Since(start))
		}
		time.Sleep(2 * time.Second)
		if got := r.Get(t.Context(), 10*time.Second).Images[0].Bytes; got != 2 || calls != 2 {
			t.Errorf("bytes %d, %d questions; want the second answer", got, calls)
		}
	})
}

func TestARuntimeThatDoesNotAnswerCostsNoMoreThanTheCallersPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRuntime(time.Minute, func(ctx context.Context) (RuntimeUsage, error) {
			<-ctx.Done()
			return RuntimeUsage{}, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		if got := r.Get(ctx, time.Second); got.Images != nil || time.Since(start) != 500*time.Millisecond {
			t.Errorf("%v after %s", got, time.Since(start))
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestFilesOfADirectoryAreCountedWithoutWhatLiesBelow(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "container"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pod.log", "container/0.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 8192), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, "pod.log")} {
		got, err := Files(path)
		if err != nil || got.Inodes != 1 || got.Bytes < 8192 || got.Bytes >= 2*8192 {
			t.Errorf("%s: %+v, %v; want the one file", path, got, err)
		}
	}
	if _, err := Files(filepath.Join(dir, "absent")); err == nil {
		t.Error("a file that is not there was measured")
	}
}
