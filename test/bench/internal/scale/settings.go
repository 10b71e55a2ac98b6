package scale

import (
	"context"
	"flag"
	"time"

	"github.com/polylet/polylet/test/bench/internal/rounds"
)

// Settings are the flags of `bench scale`.
type Settings struct {
	rounds.Config
	// Pods is how many are put on the fake runtime.
	Pods int
	// Limits names what the agent's client of the apiserver may do, comma-separated.
	Limits string
	// Trouble are flags of the fake runtime.
	Trouble string
	// Settle is how long the pods are left alone before the idle figures are
	// taken, and Idle how long those are taken.
	Settle, Idle time.Duration
}

// Command adds its flags and returns what measures.
func Command(fs *flag.FlagSet) func(context.Context) error {
	var s Settings
	s.Flags(fs)
	fs.IntVar(&s.Pods, "pods", 500, "pods on the fake runtime")
	fs.StringVar(&s.Limits, "limits", "raised", "comma-separated: raised, default; what the agent's client of the apiserver may do")
	fs.StringVar(&s.Trouble, "runtime-flags", "", "flags of the fake runtime, such as \"-delay=2s -hang-share=0.5\"; see test/cmd/fakeruntime")
	fs.DurationVar(&s.Settle, "settle", 30*time.Second, "how long the pods are left alone before the idle figures are taken")
	fs.DurationVar(&s.Idle, "idle", time.Minute, "how long those are taken")
	return func(ctx context.Context) error { return run(ctx, s) }
}
