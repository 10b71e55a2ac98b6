package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// counting are trees of a directory that its filesystem counts as fails and has say.
type counting struct {
	*Trees
	dir   Directory
	has   Tree
	fails error
	// asked is how often it was asked what is counted, told which directories were measured.
	asked int
	told  []Directory
}

func inCounting(t *testing.T, test func(ctx context.Context, c *counting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "volume")
		if err := errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "f"), []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
		c := &counting{dir: Directory{Path: path, Counted: Volume{PodUID: "u", Name: "v"}}, has: Tree{Bytes: 18 << 20, Inodes: 3}}
		c.Trees = NewTrees(TreesConfig{
			Period: time.Minute, Deadline: 10 * time.Second, Forget: time.Hour,
			Measured: func(d Directory, _ time.Duration) { c.told = append(c.told, d) },
			Count: func(ctx context.Context, v Volume) (Tree, error) {
				c.asked++
				if v != c.dir.Counted {
					return Tree{}, errors.New("another volume")
				}
				if errors.Is(c.fails, ErrAway) {
					<-ctx.Done()
				}
				return c.has, c.fails
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = c.Run(ctx) }()
		test(ctx, c)
		cancel()
		<-done
	})
}

// now has it measured anew.
func (c *counting) now(ctx context.Context) (m Measured, late bool) {
	time.Sleep(time.Millisecond) // else it was measured since
	got, lates := c.Renew(ctx, []Directory{c.dir}, time.Now())
	return got[c.dir.Path], lates[c.dir.Path]
}

func TestADirectoryThatItsFilesystemCountsIsNotWalked(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		m, late := c.now(ctx)
		if m.Tree != c.has || !m.Counted || late || m.Filesystem.Capacity == 0 || m.Time.IsZero() {
			t.Errorf("%+v, late %v", m, late)
		}
		c.has.Bytes = 1 << 20 // what is removed is no more in it
		if m, _ = c.now(ctx); m.Bytes != 1<<20 {
			t.Errorf("then %+v", m)
		}
		if len(c.told) != 2 || c.told[0] != c.dir {
			t.Errorf("measured were %+v", c.told)
		}
	})
}

func TestWhatAFilesystemCountsIsAskedForOftenerThanADirectoryIsWalked(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		for range 4 {
			c.Get(ctx, []Directory{c.dir})
			time.Sleep(countPeriod)
		}
		synctest.Wait()
		if c.asked != 4 {
			t.Errorf("asked %d times", c.asked)
		}
	})
}

func TestADirectoryThatIsNotCountedAfterAllIsWalkedAtOnce(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		c.now(ctx)
		c.fails = errors.New("not found")
		m, late := c.now(ctx)
		if m.Counted || m.Inodes != 2 || late {
			t.Errorf("%+v, late %v", m, late)
		}
		if len(c.told) != 2 || c.told[1].Counted != (Volume{}) {
			t.Errorf("measured were %+v", c.told)
		}
	})
}

// Else a restart of podsync made what is in files without a name come and go.
func TestTheFigureOfACountedDirectoryStaysOnceWhileNobodyAnswersAndIsLate(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		before, _ := c.now(ctx)
		c.fails = fmt.Errorf("%w: restarted", ErrAway)
		began := time.Now()
		m, late := c.now(ctx)
		if m != before || !late || time.Since(began) > brief {
			t.Errorf("after %s %+v, late %v", time.Since(began), m, late)
		}
		if m, late = c.now(ctx); m.Counted || m.Inodes != 2 || late {
			t.Errorf("the second time: %+v, late %v", m, late)
		}
		if c.asked != 2 {
			t.Errorf("while nobody answers it was asked %d times", c.asked)
		}
		time.Sleep(awayFor)
		c.fails = nil
		if m, late = c.now(ctx); m.Tree != c.has || !m.Counted || late {
			t.Errorf("and then: %+v, late %v", m, late)
		}
	})
}

func TestADirectoryThatWasNeverCountedIsWalkedWhileNobodyAnswers(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		c.fails = ErrAway
		if m, late := c.now(ctx); m.Counted || m.Inodes != 2 || late {
			t.Errorf("%+v, late %v", m, late)
		}
	})
}
