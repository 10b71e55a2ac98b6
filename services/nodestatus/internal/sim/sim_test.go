package sim

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/testkit/raced"
)

var (
	seeds   = flag.Int("seeds", defaultSeeds(), "how many seeds to run, from -first; POLYLET_SIM_SEEDS sets the default")
	first   = flag.Int64("first", 1, "the first seed")
	oneSeed = flag.Int64("seed", 0, "run this seed only; with -v its story is told")
)

func defaultSeeds() int {
	n, err := strconv.Atoi(os.Getenv("POLYLET_SIM_SEEDS"))
	if err != nil || n <= 0 {
		n = 100
	}
	return raced.Share(n)
}

func TestMain(m *testing.M) {
	flag.Parse()
	// client-go logs to klog what the faults make of its watches.
	klog.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(io.Discard, nil)))
	// Its handling of errors sleeps under a lock that all bubbles share.
	utilruntime.ErrorHandlers = nil
	// A seed lives shortly and leaves nothing: collecting it early is work for nothing.
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(2 << 30)
	os.Exit(m.Run())
}

// shards share the seeds out; a shard runs its seeds one after the other.
const shards = 8

func TestNobodyIsEvictedWronglyTwiceOrForgottenWhateverFails(t *testing.T) {
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

// simulate runs one seed in a bubble of its own and tells, when it fails, how to run it
// again.
func simulate(t *testing.T, seed int64, s *sabotage) (found []string) {
	t.Helper()
	func() {
		defer func() {
			if r := recover(); r != nil {
				found = append(found, fmt.Sprintf("it does not end: %v\n%s", r, debug.Stack()))
			}
		}()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed, s)
			w.simulate()
			found = w.judge.violations
			if *oneSeed != 0 {
				t.Log("trace ", w.trace.end())
			}
		})
	}()
	if s != nil {
		return found
	}
	for _, v := range found {
		t.Errorf("seed %d: %s", seed, v)
	}
	if len(found) > 0 {
		t.Logf("again: go test ./services/nodestatus/internal/sim -run TestNobodyIsEvictedWrongly -seed %d -v", seed)
	}
	return found
}
