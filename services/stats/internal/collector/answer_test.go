package collector

import (
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/services/stats/internal/disk"
)

// As a network mount whose server is away. Whoever evicts for memory goes by these signals.
func TestMemoryIsMeasuredThoughAFilesystemDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		images := t.TempDir()
		c, _ := newCollector(t, "/proc", disk.RuntimeUsage{Images: []disk.Usage{{Mountpoint: images}}})
		var mu sync.Mutex
		hangs, asked := map[string]chan struct{}{}, map[string]int{}
		c.statfs = func(path string) (disk.Filesystem, error) {
			mu.Lock()
			asked[path]++
			hang := hangs[path]
			mu.Unlock()
			if hang != nil {
				<-hang
			}
			return disk.Filesystem{Capacity: 100, Available: 50}, nil
		}
		has := func() (names []string) {
			t.Helper()
			began := time.Now()
			frame, err := c.Signals(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 3*diskTime {
				t.Errorf("it took %s", took)
			}
			for _, s := range frame.Signals {
				if name, _, found := strings.Cut(s.Name, ".available"); found && name != "pid" {
					names = append(names, name)
				}
			}
			return names
		}
		all, memory := []string{"allocatableMemory", "containerfs", "imagefs", "memory", "nodefs"}, []string{"allocatableMemory", "memory"}
		if got := has(); !slices.Equal(got, all) {
			t.Errorf("at first: %v", got)
		}
		hang := make(chan struct{})
		mu.Lock()
		hangs[images], hangs[c.cfg.RootDir] = hang, hang
		mu.Unlock()
		for range 3 {
			if got := has(); !slices.Equal(got, memory) {
				t.Errorf("while they hang: %v", got)
			}
		}
		mu.Lock()
		if asked[images] != 2 || asked[c.cfg.RootDir] != 2 {
			t.Errorf("asked again and again: %v", asked)
		}
		clear(hangs)
		mu.Unlock()
		close(hang)
		synctest.Wait()
		if got := has(); !slices.Equal(got, all) {
			t.Errorf("when they are back: %v", got)
		}
	})
}

// As one whose disk fails. Whoever evicts for memory goes by these signals.
func TestMemoryIsMeasuredThoughTheRootDirectoryCannotBe(t *testing.T) {
	c, _ := newCollector(t, "/proc", disk.RuntimeUsage{})
	bad := true
	c.statfs = func(string) (disk.Filesystem, error) {
		if bad {
			return disk.Filesystem{}, syscall.EIO
		}
		return disk.Filesystem{Capacity: 100, Available: 50}, nil
	}
	for _, disks := range []int{0, 1} {
		frame, err := c.Signals(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]int{}
		for _, s := range frame.Signals {
			found[s.Name]++
		}
		if found["memory.available"] != 1 || found["nodefs.available"] != disks {
			t.Errorf("with a filesystem that is measured %d times: %v", disks, found)
		}
		bad = false
	}
}
