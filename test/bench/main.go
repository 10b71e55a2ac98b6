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
	api      bool
	streams  bool
	repeats  int
	requests int
	bodies   string
	rows     bool
	idle     time.Duration
	settle   time.Duration
	idlePods int
	profiles string
	out      string

	// scale is how many pods are put on a fake runtime instead; none when 0.
	scale           int
	limits, trouble string
}

func main() {
	var s settings
	agents := flag.String("agents", "polylet", "comma-separated: polylet, kubelet, or NAME=PATH of a polylet that is built already; several are measured in turn, round after round")
	flag.IntVar(&s.samples, "samples", 20, "single pods per round")
	flag.IntVar(&s.burst, "burst", 30, "pods of a burst")
	flag.IntVar(&s.rounds, "rounds", 2, "rounds")
	flag.IntVar(&s.parallel, "parallel", 4, "pods at a time when the runtime alone starts a burst")
	flag.BoolVar(&s.memory, "memory", false, "measure only memory, of each process; this can be done on a busy machine")
	flag.BoolVar(&s.api, "api", false, "measure only the node's API with a burst of pods: documents, exec, logs, port-forward")
	flag.IntVar(&s.requests, "requests", 100, "with -api: how often each document is asked for over a warm connection; 0 leaves the documents out")
	flag.BoolVar(&s.streams, "streams", true, "with -api: exec, logs and port-forward too")
	flag.IntVar(&s.repeats, "repeats", 5, "with -api: how often 128 MiB go through each stream")
	flag.StringVar(&s.bodies, "bodies", "", "with -api: directory for the last of each document")
	flag.BoolVar(&s.rows, "rows", false, "measure instead how soon probes, kills and changed files are noticed, what a restart of the agent takes, and what an idle node costs")
	flag.IntVar(&s.idlePods, "idle-pods", 100, "with -rows: pods on the idle node; half of them are measured, too")
	flag.IntVar(&s.scale, "scale", 0, "measure so many pods on a fake runtime, and nothing else")
	flag.StringVar(&s.limits, "limits", "raised", "with -scale: comma-separated: raised, default; what the agent's client of the apiserver may do")
	flag.StringVar(&s.trouble, "runtime-flags", "", "with -scale: flags of the fake runtime, such as \"-delay=2s -hang-share=0.5\"; see test/cmd/fakeruntime")
	flag.DurationVar(&s.settle, "settle", 30*time.Second, "with -rows or -scale: how long the pods are left alone before the idle figures are taken")
	flag.DurationVar(&s.idle, "idle", time.Minute, "with -rows or -scale: how long those are taken")
	flag.StringVar(&s.profiles, "profiles", "", "directory for profiles of polylet's processes: heaps with -memory, podsync's CPU in a burst, what -api and -scale say")
	flag.StringVar(&s.out, "out", "", "file for the report; empty is docs/results/bench-DATE.md of the checkout, and api-, rows- or scale-DATE.md with these")
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
	measure, write := measureAgent, report
	switch {
	case s.rows:
		measure, write = measureRows, rowsReport
	case s.api:
		write = apiReport
	}
	for round := range s.rounds {
		for _, agent := range s.agents {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s …\n", round+1, s.rounds, agent)
			if err := measure(ctx, s, agent, results); err != nil {
				// What was measured until then is worth seeing.
				fmt.Fprint(os.Stderr, write(s, results, time.Now()))
				return fmt.Errorf("measure %s: %w", agent, err)
			}
			// A later round may fail, or be stopped.
			if err := store(s, write(s, results, time.Now()), time.Now()); err != nil {
				return err
			}
		}
	}
	fmt.Print(write(s, results, time.Now()))
	return nil
}
