package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// quiet are the traces in short of the seeds that this process has had simulated without a
// load beside them: they need not be again.
var quiet = map[int64]string{}

// replayAll runs the seeds whose traces sums has not, so many at once, each in a process
// of its own, and adds their traces in short; those that fail are told.
func replayAll(t *testing.T, program string, from int64, n, atOnce int, sums map[int64]string) {
	t.Helper()
	todo := without(sums, from, n)
	var mu sync.Mutex
	next := make(chan int64)
	var wg sync.WaitGroup
	for range atOnce {
		mother, err := launch(t.Context(), program, "-traces", *traces)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(mother.end)
		wg.Go(func() {
			for seed := range next {
				var out bytes.Buffer
				err := mother.simulate(seed, &out)
				mu.Lock()
				if err != nil {
					t.Errorf("seed %d: %v\n%s", seed, err, out.String())
				}
				for line := range strings.Lines(out.String()) {
					if sum, ok := strings.CutPrefix(line, "TRACE "); ok {
						sums[seed] = strings.TrimSpace(sum)
					}
				}
				mu.Unlock()
			}
		})
	}
	for _, seed := range todo {
		next <- seed
	}
	close(next)
	wg.Wait()
}

// without are n seeds but those that have a trace.
func without(sums map[int64]string, from int64, n int) []int64 {
	var out []int64
	for seed := from; seed < from+int64(n); seed++ {
		if sums[seed] == "" {
			out = append(out, seed)
		}
	}
	return out
}

func TestASeedThatHasATraceIsNotSimulatedAgain(t *testing.T) {
	if got, want := without(map[int64]string{3: "3 of 3", 4: "", 9: "9 of 9"}, 2, 4), []int64{2, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("%v are simulated, want %v", got, want)
	}
}

// replayed is how many seeds are run twice, and differing how many of them may
// differ: of 700 that were run twice beside a load of 25 two did, in which of two
// goroutines went first, and why is not understood. The number may only fall.
const replayed, differing = 200, 2

func TestASeedGivesTheSameTraceBesideALoad(t *testing.T) {
	if !*exact || *oneSeed != 0 {
		t.Skip("builds Go's runtime anew: -exact (make replay)")
	}
	program, cpus := buildExact(t), runtime.NumCPU()
	replayAll(t, program, *first, replayed, cpus, quiet)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 * cpus))
	for range 2 * cpus {
		go func() {
			for ctx.Err() == nil { //nolint:revive // the load is all it is for
			}
		}()
	}
	loaded := map[int64]string{}
	replayAll(t, program, *first, replayed, 4*cpus, loaded)
	differ := 0
	for seed := *first; seed < *first+replayed; seed++ {
		was, is := quiet[seed], loaded[seed]
		switch {
		case was == "" || is == "":
			t.Errorf("seed %d left no trace: %q, beside a load %q", seed, was, is)
		case was != is:
			differ++
			t.Logf("seed %d does not replay exactly: steps and sum of its trace %s, beside a load %s", seed, was, is)
		}
	}
	if differ > differing {
		t.Errorf("%d of %d seeds do not replay exactly; at most %d may", differ, replayed, differing)
	}
}

// enterScratch makes a directory in memory this process's own: its files have
// the same names then in every process, for names become part of what podsync does.
func enterScratch() (leave func(), err error) {
	dir := filepath.Join(cmp.Or(memory(), os.TempDir()), fmt.Sprintf("polylet-sim-%010d", os.Getpid())) // as long for each, for what is allocated after it
	// What is there is of a run that was killed: no other process has this number.
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return nil, fmt.Errorf("make a directory for a seed: %w", err)
	}
	return func() { _ = os.RemoveAll(dir) }, os.Chdir(dir)
}

// memory is where many small files cost little; empty when that is nowhere.
func memory() string {
	if _, err := os.Stat("/dev/shm"); err != nil {
		return ""
	}
	return "/dev/shm"
}

// scratch is the directory of a seed: podsync writes, syncs and removes many small
// files.
func scratch(t *testing.T) string {
	if *nursery {
		const dir = "/proc/self/cwd/world"
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir, err := os.MkdirTemp(memory(), "polylet-sim-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
