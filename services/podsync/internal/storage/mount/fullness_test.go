package mount

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestHowFullAFilesystemIsIsAskedByAProcessOfItsOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	k, dir := New(Config{}), t.TempDir()
	if err := k.Tmpfs(dir, 1<<20); err != nil {
		t.Skipf("mounts are not allowed here: %v", err)
	}
	t.Cleanup(func() { _ = k.Unmount(dir) })
	if err := os.WriteFile(dir+"/file", make([]byte, 256<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := k.Statfs(t.Context(), dir)
	if f := FullnessOf(&st); err != nil || f.Capacity != 1<<20 || f.Used != 256<<10 || f.Available != 768<<10 || f.Inodes-f.InodesFree != 2 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := k.Statfs(t.Context(), dir+"/absent"); err == nil || !strings.Contains(err.Error(), "no such file or directory") {
		t.Error(err)
	}
}

// TestAsManyAsAskAboutOneFilesystemAreAnsweredByOneProcess: who measures a node asks about
// all of its volumes at once.
func TestAsManyAsAskAboutOneFilesystemAreAnsweredByOneProcess(t *testing.T) {
	target := onAMount(t)
	synctest.Test(t, func(t *testing.T) {
		p := &processes{}
		k := &Kernel{looks: p}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if st, err := k.Statfs(t.Context(), target); err != nil || st.Files != 7 {
					t.Errorf("%+v, %v", st, err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		all := 0
		for _, n := range p.asked {
			all += n
		}
		if all != 100 || len(p.asked) > 3 || slices.Max(p.asked) > mostAtOnce {
			t.Errorf("processes were asked about %v paths", p.asked)
		}
		if n := len(k.full.waiting) + len(k.full.asking); n != 0 {
			t.Errorf("%d are left over", n)
		}
	})
}

// processes say after a second that there are 7 inodes, wherever it is.
type processes struct{ asked []int }

func (p *processes) Do(_ context.Context, _, _ string, paths ...string) (string, error) {
	p.asked = append(p.asked, len(paths)) // one after the other
	time.Sleep(time.Second)
	answers := make([]fullnessAnswer, len(paths))
	for i := range answers {
		answers[i].Stat.Files = 7
	}
	said, err := json.Marshal(answers)
	return string(said), err
}

func TestAServerThatDoesNotSayHowFullItIsIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, began := &Kernel{looks: &servers{umount: hangs}}, time.Now()
		if _, err := k.Statfs(t.Context(), "/absent"); !errors.Is(err, errSlow) || time.Since(began) != answersWithin {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestAFileServerThatNeverAnswersHoldsUpNoThread: here it is a process that has mounted a
// filesystem and does not read what the kernel asks it.
func TestAFileServerThatNeverAnswersHoldsUpNoThread(t *testing.T) {
	k, dir := New(Config{}), t.TempDir()
	silent, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there is no FUSE: %v", err)
	}
	defer silent.Close()
	options := "rootmode=40000,user_id=0,group_id=0,fd=" + strconv.Itoa(int(silent.Fd()))
	if err := unix.Mount("silent", dir, "fuse.silent", 0, options); err != nil {
		t.Skipf("mounts are not allowed here: %v", err)
	}
	t.Cleanup(func() {
		silent.Close() // ends what waits
		if err := k.Unmount(dir); err != nil {
			t.Error(err)
		}
	})
	k.looks = shortly{k.looks}
	if _, err := k.Statfs(t.Context(), dir); !errors.Is(err, errSlow) {
		t.Error(err)
	}
	if mounted, err := mountedByTable(dir); err != nil || !mounted {
		t.Errorf("mounted: %v, %v", mounted, err)
	}
	if served, err := k.Served(dir); err != nil || !served[dir] {
		t.Errorf("%v, %v", served, err)
	}
	if err := k.UnmountRemote(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if mounted, err := k.Mounted(dir); err != nil || mounted {
		t.Errorf("still mounted: %v, %v", mounted, err)
	}
}

func TestAServerMaySayThatMoreIsFreeThanThereIs(t *testing.T) {
	if f := FullnessOf(&unix.Statfs_t{Bsize: 4, Blocks: 2, Bfree: 3, Bavail: 1}); f.Used != 0 || f.Capacity != 8 || f.Available != 4 {
		t.Errorf("%+v", f)
	}
}

// shortly gives calls less time.
type shortly struct{ doer }

func (s shortly) Do(ctx context.Context, whose, call string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Second, errSlow)
	defer cancel()
	return s.doer.Do(ctx, whose, call, args...)
}
