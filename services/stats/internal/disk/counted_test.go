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

// counting are trees of a directory that its filesystem counts as fails and has say; that is
// what a walk finds, at first.
type counting struct {
	*Trees
	dir   Directory
	has   Tree
	fails error
	// held is what is in files without a name.
	held Tree
	// asked is how often it was asked what is counted, told which directories were measured.
	asked int
	told  []Directory
}

func inCounting(t *testing.T, test func(ctx context.Context, c *counting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "volume")
		if err := errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "f"), make([]byte, 1<<20), 0o600)); err != nil {
			t.Fatal(err)
		}
		walked, err := Walk(t.Context(), path, func(Tree) {})
		if err != nil {
			t.Fatal(err)
		}
		c := &counting{dir: Directory{Path: path, Counted: Volume{PodUID: "u", Name: "v"}}, has: walked}
		c.Trees = NewTrees(TreesConfig{
			Period: time.Minute, Deadline: 10 * time.Second, Forget: time.Hour,
			Measured: func(d Directory, _ time.Duration) { c.told = append(c.told, d) },
			Held:     func(context.Context, Volume) Tree { return c.held },
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
	got, lates := c.Renew(ctx, []Directory{c.dir}, time.Now(), true)
	return got[c.dir.Path], lates[c.dir.Path]
}

// walks is how many of the measurements were walks.
func (c *counting) walks() (n int) {
	for _, d := range c.told {
		if d.Counted == (Volume{}) {
			n++
		}
	}
	return n
}

// soon has it measured in its turn, and after does so later.
func (c *counting) soon(ctx context.Context) Measured { return c.after(ctx, countPeriod) }

func (c *counting) after(ctx context.Context, d time.Duration) Measured {
	time.Sleep(d)
	c.Get(ctx, []Directory{c.dir})
	time.Sleep(2 * countWithin) // else one that has no answer is still asking
	synctest.Wait()
	return c.Get(ctx, []Directory{c.dir})[c.dir.Path]
}

func TestADirectoryThatItsFilesystemCountsIsNotWalkedOnceAWalkHasComeToTheSame(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		walked := c.has
		for i := range 3 {
			c.has.Bytes = walked.Bytes - uint64(i) // a little was removed since
			if m := c.soon(ctx); m.Tree != c.has || !m.Counted || m.Filesystem.Capacity == 0 || m.Time.IsZero() {
				t.Errorf("%+v", m)
			}
			c.has.Bytes = walked.Bytes + 100 // or is more, which no walk has found
			if m := c.soon(ctx); m.Tree != walked || !m.Counted {
				t.Errorf("with more %+v", m)
			}
		}
		if len(c.told) != 6 || c.walks() != 1 {
			t.Errorf("measured were %+v", c.told)
		}
	})
}

// What lost its name, or was closed, since the walk that a count agreed with, is to be in no figure
// by which a pod may be ended.
func TestWhoMayEndAPodByItHasADirectoryWalkedAlone(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		walked := c.has
		c.held, c.has.Bytes = Tree{Bytes: 10 << 20}, c.has.Bytes+10<<20
		if m := c.soon(ctx); m.Tree != c.has || !m.Counted {
			t.Errorf("before: %+v", m)
		}
		asked := c.asked
		if m, late := c.now(ctx); m.Tree != walked || m.Unnamed != (Tree{}) || m.Counted || late || c.asked != asked {
			t.Errorf("%+v, late %v, asked %d times", m, late, c.asked-asked)
		}
		if m := c.soon(ctx); m.Tree != c.has || !m.Counted {
			t.Errorf("in its turn: %+v", m)
		}
	})
}

// Others may give files of their own a directory's project, and take it from those that lie in
// it; and what is written to a file without a name is found otherwise.
func TestWhatIsCountedAndNoWalkFindsIsNotTheFigure(t *testing.T) {
	for name, counts := range map[string]func(Tree) Tree{
		"more":         func(walked Tree) Tree { return Tree{Bytes: walked.Bytes + 20<<20, Inodes: walked.Inodes + 1} },
		"less":         func(Tree) Tree { return Tree{} },
		"more of them": func(walked Tree) Tree { return Tree{Bytes: walked.Bytes, Inodes: walked.Inodes + 100} },
	} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after it was believed: %v", name, before), func(t *testing.T) {
				inCounting(t, func(ctx context.Context, c *counting) {
					walked := c.has
					if before {
						c.now(ctx)
					}
					c.has = counts(walked)
					m, late := c.now(ctx)
					if m.Tree != walked || m.Counted || late {
						t.Errorf("%+v, late %v", m, late)
					}
					if last, known := c.Last(c.dir.Path); last != m || !known {
						t.Errorf("the last is %+v, known: %v", last, known)
					}
				})
			})
		}
	}
}

func TestWhatIsInFilesWithoutANameIsInTheFigureOnce(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		walked := c.has
		c.soon(ctx)
		c.held = Tree{Bytes: 30 << 20, Inodes: 30} // two thirds of it lie elsewhere, or were counted before
		c.has = Tree{Bytes: walked.Bytes + 10<<20, Inodes: walked.Inodes + 10}
		for i := range 3 {
			if m := c.soon(ctx); m.Tree != c.has || !m.Counted || m.Unnamed != (Tree{Bytes: 10 << 20, Inodes: 10}) {
				t.Errorf("%d: %+v", i, m)
			}
		}
		if c.walks() != 2 {
			t.Errorf("walked %d times", c.walks())
		}
		c.has, c.held = walked, Tree{} // they are closed
		if m := c.soon(ctx); m.Tree != walked || !m.Counted || m.Unnamed != (Tree{}) {
			t.Errorf("when they are closed %+v", m)
		}
		c.has.Bytes, c.held.Bytes = c.has.Bytes+50<<20, 10<<20 // most of it is another's
		if m := c.soon(ctx); m.Tree != walked || m.Counted || m.Unnamed != (Tree{}) {
			t.Errorf("with another's %+v", m)
		}
	})
}

func TestTheLastFigureOfADirectoryIsKnownOnceItHasOne(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		if last, known := c.Last(c.dir.Path); known {
			t.Errorf("before its first: %+v", last)
		}
		m, _ := c.now(ctx)
		if last, known := c.Last(c.dir.Path); last != m || !known {
			t.Errorf("then: %+v, known: %v", last, known)
		}
	})
}

func TestWhatAFilesystemCountsIsAskedForOftenerThanADirectoryIsWalked(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		gets := func(n int) {
			for range n {
				c.Get(ctx, []Directory{c.dir})
				time.Sleep(countPeriod)
			}
			synctest.Wait()
		}
		gets(10)
		if c.asked != 10 || c.walks() != 1 {
			t.Errorf("asked %d times, walked %d times", c.asked, c.walks())
		}
		for range 5 { // it always has more than before, and is walked for it
			c.has.Bytes += 1 << 20
			gets(1)
		}
		if c.asked != 15 || c.walks() != 6 {
			t.Errorf("then asked %d times, walked %d times", c.asked, c.walks())
		}
	})
}

func TestWhatIsCountedIsHeldAgainstAWalkNowAndThen(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		c.soon(ctx)
		for range 3 {
			if m := c.after(ctx, proofLasts); m.Tree != c.has || !m.Counted {
				t.Errorf("%+v", m)
			}
		}
		if c.walks() != 4 {
			t.Errorf("walked %d times", c.walks())
		}
	})
}

func TestADirectoryThatIsNotCountedAfterAllIsWalkedAtOnce(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		c.soon(ctx)
		c.fails = errors.New("not found")
		if m := c.soon(ctx); m.Counted || m.Inodes != 2 {
			t.Errorf("%+v", m)
		}
		if len(c.told) != 2 || c.told[1].Counted != (Volume{}) {
			t.Errorf("measured were %+v", c.told)
		}
	})
}

// Else a restart of podsync made what is in files without a name come and go.
func TestTheFigureOfACountedDirectoryStaysOnceWhileNobodyAnswers(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		before := c.soon(ctx)
		c.fails = fmt.Errorf("%w: restarted", ErrAway)
		if m := c.soon(ctx); m != before || c.walks() != 1 {
			t.Errorf("%+v, walked %d times", m, c.walks())
		}
		if m := c.soon(ctx); m.Counted || m.Inodes != 2 || c.walks() != 2 {
			t.Errorf("the second time: %+v, walked %d times", m, c.walks())
		}
		if c.asked != 3 {
			t.Errorf("asked %d times", c.asked)
		}
		c.fails = nil
		if m := c.after(ctx, time.Minute); m.Tree != c.has || !m.Counted {
			t.Errorf("and then: %+v", m)
		}
	})
}

func TestWhatHasNoNameStaysInTheFigureWhileNobodyAnswersAsLongAsItIsHeld(t *testing.T) {
	inCounting(t, func(ctx context.Context, c *counting) {
		walked := c.has
		c.held = Tree{Bytes: 10 << 20, Inodes: 2}
		c.has = Tree{Bytes: walked.Bytes + 10<<20, Inodes: walked.Inodes + 2}
		before := c.soon(ctx)
		c.fails = ErrAway
		c.soon(ctx) // the last figure stays once
		if m := c.soon(ctx); m.Tree != before.Tree || m.Unnamed != before.Unnamed || m.Counted || c.walks() != 2 {
			t.Errorf("%+v, walked %d times; before it was %+v", m, c.walks(), before)
		}
		c.held.Bytes = 4 << 20
		if m := c.after(ctx, time.Minute); m.Bytes != walked.Bytes+4<<20 || m.Unnamed.Bytes != 4<<20 {
			t.Errorf("when less is held %+v", m)
		}
		c.held.Bytes = 400 << 20 // of which nobody knows whether it lies there
		if m := c.after(ctx, time.Minute); m.Bytes != walked.Bytes+4<<20 {
			t.Errorf("when more is held %+v", m)
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

// What another has counted for it, and what a look at open files of another moment has twice, is in
// no figure of who may be ended by it, be its walk cut short at first.
func TestAFigureThatIsMeasuredAnewHasWhatWasWalkedAlone(t *testing.T) {
	h := &history{named: Tree{Bytes: 6 * gibibyte, Inodes: 10}, held: Tree{Bytes: 2 * gibibyte, Inodes: 1}, takes: 20 * time.Millisecond}
	h.lives(t, func(ctx context.Context, all *Trees, dir Directory) {
		for _, takes := range []time.Duration{20 * time.Millisecond, 2 * time.Second} {
			h.takes = takes
			all.Get(ctx, []Directory{dir})
			for range 6 {
				time.Sleep(10 * countPeriod)
				if m := all.Get(ctx, []Directory{dir})[dir.Path]; m.Bytes != 8*gibibyte {
					t.Errorf("walked in %s: the figure in its turn is %+v", takes, m)
				}
			}
			began := time.Now()
			limited, cancel := context.WithTimeout(ctx, 3*time.Second)
			have, late := all.Renew(limited, []Directory{dir}, began, true)
			cancel()
			if m := have[dir.Path]; m.Bytes != h.named.Bytes || m.Unnamed != (Tree{}) || late[dir.Path] {
				t.Errorf("walked in %s: %+v, late %v", takes, m, late)
			}
		}
	})
}

// A count is no walk: who wants a directory measured since a time would have one that others have
// a part in.
func TestAQuestionForWhatIsCountedIsNoWalkSinceATime(t *testing.T) {
	h := &history{named: Tree{Bytes: 6 * gibibyte, Inodes: 10}, takes: 20 * time.Millisecond}
	h.lives(t, func(ctx context.Context, all *Trees, dir Directory) {
		all.Get(ctx, []Directory{dir})
		time.Sleep(2 * countPeriod)
		all.Get(ctx, []Directory{dir})
		time.Sleep(time.Second)
		if last, _ := all.Last(dir.Path); !last.Counted {
			t.Fatalf("%+v", last)
		}
		since := time.Now()
		time.Sleep(countPeriod)
		all.Get(ctx, []Directory{dir})
		time.Sleep(time.Second)
		if last, _ := all.Last(dir.Path); last.Time.Before(since) || !last.Counted {
			t.Fatalf("it was not counted since: %+v", last)
		}
		h.named = Tree{Bytes: 6*gibibyte - 4096, Inodes: 9} // as near as a count has to be
		have, late := all.Renew(ctx, []Directory{dir}, since, true)
		if m := have[dir.Path]; m.Inodes != 9 || late[dir.Path] {
			t.Errorf("%+v, late %v", m, late)
		}
	})
}
