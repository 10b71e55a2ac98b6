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
}

func main() {
	var s settings
	agents := flag.String("agents", "polylet", "comma-separated: polylet, kubelet, or NAME=PATH of a polylet that is built already; several are measured in turn, round after round")
	flag.IntVar(&s.samples, "samples", 20, "single pods per round")
	flag.IntVar(&s.burst, "burst", 30, "pods of a burst")
	flag.IntVar(&s.rounds, "rounds", 2, "rounds")
	flag.IntVar(&s.parallel, "parallel", 4, "pods at a time when the runtime alone starts a burst")
	flag.BoolVar(&s.memory, "memory", false, "measure only memory, of each process; this can be done on a busy machine")
	flag.StringVar(&s.profiles, "profiles", "", "directory for profiles: with -memory the heap of each of polylet's processes, else podsync's CPU in a burst")
	flag.StringVar(&s.out, "out", "", "file for the report; empty is docs/results/bench-DATE.md of the checkout")
	flag.Parse()
	s.agents = strings.Split(*agents, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
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
