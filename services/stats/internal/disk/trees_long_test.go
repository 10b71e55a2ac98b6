package disk

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Else nobody knew who fills a disk with so many files that they cannot all be counted.
func TestOfADirectoryThatTakesTooLongWhatWasCountedIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trees := NewTrees(TreesConfig{Period: time.Minute, Deadline: 30 * time.Second, Forget: time.Hour})
		var size, rate atomic.Uint64
		size.Store(100)
		rate.Store(10) // It takes 100 s at first.
		trees.measureOne = func(ctx context.Context, _ Directory, soFar func(Measured)) (Measured, error) {
			for m := (Measured{Filesystem: Filesystem{Capacity: 1000}, Time: time.Now()}); ; {
				soFar(m)
				select {
				case <-ctx.Done():
					return m, ctx.Err()
				case <-time.After(10 * time.Second):
				}
				m.Bytes, m.Inodes = m.Bytes+rate.Load()*10, m.Inodes+1
				if m.Bytes >= size.Load()*10 {
					return m, nil
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = trees.Run(ctx) }()
		renew := func(within time.Duration) Measured {
			short, end := context.WithTimeout(ctx, within)
			defer end()
			got, _ := trees.Renew(short, []Directory{{Path: "a"}}, time.Now(), true)
			return got["a"]
		}
		if got := renew(15 * time.Second); got.Bytes != 100 || got.Inodes != 1 || got.Filesystem.Capacity != 1000 {
			t.Errorf("while it is counted: %+v", got)
		}
		time.Sleep(20 * time.Second)
		if got := trees.have([]Directory{{Path: "a"}})["a"]; got.Bytes != 200 && got.Bytes != 300 {
			t.Errorf("when it was cut short: %+v", got)
		}
		rate.Store(50) // It is counted whole.
		if got := renew(time.Minute); got.Bytes != 1000 {
			t.Errorf("when there was time: %+v", got)
		}
		rate.Store(1)
		if got := renew(time.Minute); got.Bytes != 1000 {
			t.Errorf("less was counted than there was: %+v", got)
		}
		rate.Store(50)
		size.Store(50) // Half of it was removed.
		if got := renew(time.Minute); got.Bytes != 500 {
			t.Errorf("what was counted whole is the figure: %+v", got)
		}
		cancel()
		<-done
	})
}

func TestAWalkTellsWhatItHasCounted(t *testing.T) {
	dir := t.TempDir()
	for i := range 2000 {
		if err := os.WriteFile(filepath.Join(dir, "file"+strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var told []Tree
	got, err := Walk(ctx, dir, func(t Tree) {
		told = append(told, t)
		if t.Inodes > 500 {
			cancel()
		}
	})
	if err == nil || got.Inodes <= 500 || got.Inodes >= 2000 || told[len(told)-1] != got {
		t.Errorf("%+v, %v; told %v", got, err, told)
	}
}
