package rows

import (
	"context"
	"flag"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/rounds"
)

// Settings are the flags of `bench rows`.
type Settings struct {
	rounds.Config
	// Samples is how often each thing that is noticed is timed.
	Samples int
	// IdlePods is how many pods the idle node has; half of them are measured, too.
	IdlePods int
	// Settle is how long the pods are left alone before the idle figures are
	// taken, and Idle how long those are taken.
	Settle, Idle time.Duration
}

// Command adds its flags and returns what measures.
func Command(fs *flag.FlagSet) func(context.Context) error {
	var s Settings
	s.Flags(fs)
	fs.IntVar(&s.Samples, "samples", 20, "how often each thing that is noticed is timed")
	fs.IntVar(&s.IdlePods, "idle-pods", 100, "pods on the idle node; half of them are measured, too")
	fs.DurationVar(&s.Settle, "settle", 30*time.Second, "how long the pods are left alone before the idle figures are taken")
	fs.DurationVar(&s.Idle, "idle", time.Minute, "how long those are taken")
	return func(ctx context.Context) error {
		return rounds.Run(ctx, s.Config, "rows",
			func(ctx context.Context, agent string, r *report.Results) error { return measure(ctx, s, agent, r) },
			func(r *report.Results, now time.Time) string { return table(s, r, now) })
	}
}
