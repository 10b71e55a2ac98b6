// Package rounds measures agents in turn, round after round, and writes the
// report each time. It must never know what is measured, or how it is shown.
package rounds

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
)

// Config is what every kind of measurement is told.
type Config struct {
	// Agents are polylet, kubelet, or NAME=PATH of a polylet that is built already.
	Agents []string
	// Rounds is how often each agent is measured.
	Rounds int
	// Profiles is a directory for profiles of polylet's processes; empty takes none.
	Profiles string
	// Out is the report's file; empty is docs/results/KIND-DATE.md of the checkout.
	Out string
}

// Flags adds the flags that all kinds have.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Agents = []string{"polylet"}
	fs.Func("agents", "comma-separated: polylet, kubelet, or NAME=PATH of a polylet that is built already; several are measured in turn, round after round (default polylet)",
		func(names string) error {
			c.Agents = strings.Split(names, ",")
			return nil
		})
	fs.IntVar(&c.Rounds, "rounds", 2, "rounds")
	fs.StringVar(&c.Profiles, "profiles", "", "directory for profiles of polylet's processes")
	fs.StringVar(&c.Out, "out", "", "file for the report; empty is one in docs/results of the checkout, named for what was measured and the day")
}

// Measure takes one agent's figures.
type Measure func(ctx context.Context, agent string, r *report.Results) error

// Write makes the report.
type Write func(r *report.Results, now time.Time) string

// Run measures all agents. The report is written after each, for a later one may
// fail, and printed at the end.
func Run(ctx context.Context, c Config, kind string, measure Measure, write Write) error {
	results := report.New()
	for round := range c.Rounds {
		for _, agent := range c.Agents {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s …\n", round+1, c.Rounds, agent)
			if err := measure(ctx, agent, results); err != nil {
				// What was measured until then is worth seeing.
				fmt.Fprint(os.Stderr, write(results, time.Now()))
				return fmt.Errorf("measure %s: %w", agent, err)
			}
			if err := report.Store(c.Out, kind, write(results, time.Now()), time.Now()); err != nil {
				return err
			}
		}
	}
	fmt.Print(write(results, time.Now()))
	return nil
}
