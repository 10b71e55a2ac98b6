package sim

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/contain"
	"github.com/polylet/polylet/internal/testkit/raced"
)

var (
	seeds   = flag.Int("seeds", defaultSeeds(), "how many seeds to run, from -first; POLYLET_SIM_SEEDS sets the default")
	first   = flag.Int64("first", 1, "the first seed")
	oneSeed = flag.Int64("seed", 0, "run this seed only; with -v its story is told")
	exact   = flag.Bool("exact", false, "run each seed such that it replays exactly, in a process of its own; with -seed its trace is printed")
	story   = flag.Bool("story", false, "with -exact -seed, tell the story, too")
	traces  = flag.String("traces", "", "keep the trace of each seed in this directory; - prints it")
)

func defaultSeeds() int {
	if n, err := strconv.Atoi(os.Getenv("POLYLET_SIM_SEEDS")); err == nil && n > 0 {
		return n
	}
	if raced.Enabled {
		return 100 // a race shows in many seeds, and each takes several times as long
	}
	return 200
}

func TestMain(m *testing.M) {
	flag.Parse()
	// client-go logs to klog what the faults make of its watches.
	klog.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(io.Discard, nil)))
	// Its handling of errors sleeps under a lock that all bubbles share.
	utilruntime.ErrorHandlers = nil
	// A seed lives for a tenth of a second and leaves nothing: collecting it
	// early is work for nothing.
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(2 << 30)
	leave := func() {}
	if *nursery {
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(math.MaxInt64)
		err := warm()
		if err == nil {
			err = bear()
		}
		if err == nil {
			leave, err = enterScratch()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	leave()
	os.Exit(code)
}

// shards share the seeds out; a shard runs its seeds one after the other.
const shards = 8

func TestPodsyncKeepsItsPromisesWhateverFails(t *testing.T) {
	switch {
	case *oneSeed != 0 && *exact:
		args := []string{"-traces", cmp.Or(*traces, "-")}
		if *story {
			args = append(args, "-test.v")
		}
		mother, err := launch(t.Context(), buildExact(t), args...)
		if err != nil {
			t.Fatal(err)
		}
		defer mother.end()
		if err := mother.simulate(*oneSeed, os.Stdout); err != nil {
			t.Errorf("seed %d: %v", *oneSeed, err)
		}
		return
	case *oneSeed != 0:
		simulate(t, *oneSeed, nil)
		return
	case *exact:
		replayAll(t, buildExact(t), *first, *seeds, runtime.NumCPU(), quiet)
		return
	}
	for shard := range shards {
		t.Run(fmt.Sprint("shard ", shard), func(t *testing.T) {
			t.Parallel()
			for i := shard; i < *seeds; i += shards {
				simulate(t, *first+int64(i), nil)
			}
		})
	}
}

// replayOf says how a seed is run again.
func replayOf(seed int64) string {
	exactly := fmt.Sprintf("make replay SEED=%d", seed)
	if *nursery {
		return "replay: " + exactly
	}
	return fmt.Sprintf("replay: %s; if goroutines in that order do not fail: go test ./services/podsync/internal/sim -run TestPodsyncKeepsItsPromisesWhateverFails -seed %d -v -count 20", exactly, seed)
}

// A loop that virtual time does not leave must not go on for ever: what this
// process works while a seed lives is bounded, for on a machine that is busy with
// other things a seed that does nothing wrong may take minutes; and what waits
// without work for what never comes is bounded in real time.
const (
	mostWork    = 5 * time.Minute
	longestSeed = 20 * time.Minute
)

// boundSeed panics when a seed does not end; release ends that.
func boundSeed(seed int64, replay string) (release func()) {
	began, work := time.Now(), worked()
	done := make(chan struct{})
	go func() {
		for tick := time.NewTicker(mostWork); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
			if worked()-work > mostWork || time.Since(began) > longestSeed {
				panic(fmt.Sprintf("seed %d does not end: goroutines go on and virtual time does not; %s\n%s", seed, replay, busy()))
			}
		}
	}()
	return func() { close(done) }
}

// worked is how long this process has kept processors busy.
func worked() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// simulate runs one seed in a bubble of its own and tells, when it fails, how
// to replay it.
func simulate(t *testing.T, seed int64, s *sabotage) []string {
	t.Helper()
	dir := scratch(t)
	replay := replayOf(seed)
	defer boundSeed(seed, replay)()
	var found []string
	panics := contain.Seen()
	func() {
		defer func() {
			if r := recover(); r != nil {
				found = append(found, fmt.Sprintf("goroutines did not end: %v\n%s", r, bubbles()))
			}
		}()
		if *nursery {
			cryptotest.SetGlobalRandom(t, uint64(seed))
		}
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed, dir, s)
			w.run()
			found = w.judge.found()
			if sum := w.trace.end(); *nursery {
				fmt.Printf("TRACE %s\n", sum)
			}
		})
	}()
	if n := contain.Seen() - panics; n > 0 {
		found = append(found, fmt.Sprintf("podsync panicked %d times (its log has the stacks: make replay SEED=%d STORY=1)", n, seed))
	}
	_ = os.RemoveAll(dir)
	if s != nil {
		return found
	}
	for _, v := range found {
		t.Errorf("seed %d: %s", seed, v)
	}
	if len(found) > 0 {
		t.Log(replay)
	}
	return found
}

// busy are the stacks of the goroutines of a bubble that wait for no other: of
// these one keeps virtual time from going on.
func busy() string {
	buf := make([]byte, 16<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var out []string
	for _, g := range strings.Split(string(buf), "\n\n") {
		if head, _, _ := strings.Cut(g, "\n"); strings.Contains(head, "synctest bubble") && !strings.Contains(head, "durable") {
			out = append(out, g)
		}
	}
	return strings.Join(out[:min(len(out), 30)], "\n\n")
}

// bubbles are the stacks of goroutines that belong to a bubble, of podsync's if
// there are any.
func bubbles() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var ours, out []string
	for _, g := range strings.Split(string(buf), "\n\n") {
		if head, _, _ := strings.Cut(g, "\n"); strings.Contains(head, "synctest bubble") {
			out = append(out, g)
			if strings.Contains(g, "/services/podsync/internal/") && !strings.Contains(g, "sim.bubbles") {
				ours = append(ours, g)
			}
		}
	}
	if len(ours) > 0 {
		out = ours
	}
	return strings.Join(out[:min(len(out), 10)], "\n\n")
}
