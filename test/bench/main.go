// Command bench measures how fast a node starts and ends pods, and the runtime
// alone with the same pods over the CRI, so that the difference, which is the
// agent's, is seen. It must run on real parts only; figures of different runs
// are not to be compared, the columns of one run are.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// settings are the command line's flags.
type settings struct {
	agents   []string
	samples  int
	burst    int
	rounds   int
	parallel int
	memory   bool
	profiles string
	out      string

	// scale is how many pods are put on a fake runtime instead; none when 0.
	scale                  int
	limits, trouble        string
	scaleSettle, scaleIdle time.Duration
}

func main() {
	var s settings
	agents := flag.String("agents", "polylet", "comma-separated: polylet, kubelet; several are measured in turn, round after round")
	flag.IntVar(&s.samples, "samples", 20, "single pods per round")
	flag.IntVar(&s.burst, "burst", 30, "pods of a burst")
	flag.IntVar(&s.rounds, "rounds", 2, "rounds")
	flag.IntVar(&s.parallel, "parallel", 4, "pods at a time when the runtime alone starts a burst")
	flag.BoolVar(&s.memory, "memory", false, "measure only memory, of each process; this can be done on a busy machine")
	flag.StringVar(&s.profiles, "profiles", "", "with -memory or -scale: directory for profiles of polylet's processes")
	flag.StringVar(&s.out, "out", "", "file for the report; empty is docs/results/bench-DATE.md of the checkout")
	flag.IntVar(&s.scale, "scale", 0, "measure so many pods on a fake runtime, and nothing else")
	flag.StringVar(&s.limits, "limits", "raised", "with -scale: comma-separated: raised, default; what the agent's client of the apiserver may do")
	flag.StringVar(&s.trouble, "runtime-flags", "", "with -scale: flags of the fake runtime, such as \"-delay=2s -hang-share=0.5\"; see test/cmd/fakeruntime")
	flag.DurationVar(&s.scaleSettle, "settle", time.Minute, "with -scale: how long the pods are left alone before the idle figures are taken")
	flag.DurationVar(&s.scaleIdle, "idle", time.Minute, "with -scale: how long those are taken")
	flag.Parse()
	s.agents = strings.Split(*agents, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	measure := run
	if s.scale > 0 {
		measure = runScale
	}
	if err := measure(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	results := newResults()
	for round := range s.rounds {
		for _, agent := range s.agents {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s …\n", round+1, s.rounds, agent)
			if err := measureAgent(ctx, s, agent, results); err != nil {
				return fmt.Errorf("measure %s: %w", agent, err)
			}
		}
	}
	text := report(s, results, time.Now())
	fmt.Print(text)
	return store(s, text, time.Now())
}
