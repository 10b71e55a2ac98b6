package sim

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

var (
	seeds   = flag.Int("seeds", defaultSeeds(), "how many seeds to run, from -first; POLYLET_SIM_SEEDS sets the default")
	first   = flag.Int64("first", 1, "the first seed")
	oneSeed = flag.Int64("seed", 0, "run this seed only; with -v its story is told")
)

func defaultSeeds() int {
	if n, err := strconv.Atoi(os.Getenv("POLYLET_SIM_SEEDS")); err == nil && n > 0 {
		return n
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
	os.Exit(m.Run())
}

// shards share the seeds out; a shard runs its seeds one after the other.
const shards = 8

func TestPodsyncKeepsItsPromisesWhateverFails(t *testing.T) {
	if *oneSeed != 0 {
		simulate(t, *oneSeed, nil)
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

// longestSeed bounds a seed in real time: a loop that virtual time does not
// leave must not hang for ever.
const longestSeed = 2 * time.Minute

// simulate runs one seed in a bubble of its own and tells, when it fails, how
// to replay it.
func simulate(t *testing.T, seed int64, s *sabotage) []string {
	t.Helper()
	dir := scratch(t)
	replay := fmt.Sprintf("replay: go test ./services/podsync/internal/sim -run TestPodsyncKeepsItsPromisesWhateverFails -seed %d -v", seed)
	stuck := time.AfterFunc(longestSeed, func() {
		panic(fmt.Sprintf("seed %d does not end: goroutines go on and virtual time does not; %s\n%s", seed, replay, busy()))
	})
	defer stuck.Stop()
	var found []string
	func() {
		defer func() {
			if r := recover(); r != nil {
				found = append(found, fmt.Sprintf("goroutines did not end: %v\n%s", r, bubbles()))
			}
		}()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed, dir, s)
			w.run()
			found = w.judge.found()
		})
	}()
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

// scratch is a directory in memory where there is one: podsync writes, syncs and
// removes many small files.
func scratch(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "polylet-sim-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
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
