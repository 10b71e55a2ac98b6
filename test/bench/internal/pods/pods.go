// Package pods measures how fast a node starts and ends pods, and the runtime
// alone with the same pods over the CRI, so that the difference, which is the
// agent's, is seen; or only what the agent's processes hold. It must never measure
// on a double.
package pods

import (
	"context"
	"flag"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/rounds"
)

// Settings are the flags of `bench pods`.
type Settings struct {
	rounds.Config
	// Samples is how many single pods a round has, and Burst how many pods are
	// started at once.
	Samples, Burst int
	// Parallel is how many pods of the burst the runtime alone gets at a time.
	Parallel int
	// Memory measures only what each process holds.
	Memory bool
}

// Command adds its flags and returns what measures.
func Command(fs *flag.FlagSet) func(context.Context) error {
	var s Settings
	s.Flags(fs)
	fs.IntVar(&s.Samples, "samples", 20, "single pods per round")
	fs.IntVar(&s.Burst, "burst", 30, "pods of a burst")
	fs.IntVar(&s.Parallel, "parallel", 4, "pods at a time when the runtime alone starts a burst")
	fs.BoolVar(&s.Memory, "memory", false, "measure only memory, of each process; this can be done on a busy machine; -profiles saves the heaps, else podsync's CPU in the burst")
	return func(ctx context.Context) error {
		return rounds.Run(ctx, s.Config, "bench",
			func(ctx context.Context, agent string, r *report.Results) error { return measure(ctx, s, agent, r) },
			func(r *report.Results, now time.Time) string { return table(s, r, now) })
	}
}
