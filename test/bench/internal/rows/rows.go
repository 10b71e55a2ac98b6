// Package rows measures what a node does beside starting and ending pods: how soon
// it notices, and what it costs when nothing happens. It must never take a figure that
// the agent says of itself.
package rows

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
	"github.com/polylet/polylet/test/harness/install"
)

// Bounds of what -rows waits for.
const (
	// rowWithin bounds every wait for one pod or file.
	rowWithin = 10 * time.Minute
	// rowPeriod is the period of the probes that are timed.
	rowPeriod = 1
	// restarts is how often the whole agent is killed.
	restarts = 3
)

// rows measures what a node does beside starting and ending pods: how soon it
// notices, and what it costs when nothing happens.
type rows struct {
	s    Settings
	st   *stage.Stage
	c    *report.Column
	pods *podWatch
}

// measure measures one agent on a fresh stage.
func measure(ctx context.Context, s Settings, agent string, r *report.Results) error {
	if err := install.Check(); err != nil {
		return err
	}
	st := &stage.Stage{Counted: true}
	defer st.Close()
	if err := st.Open(ctx, agent); err != nil {
		return err
	}
	if err := st.Node.Start(ctx); err != nil {
		return err
	}
	if err := st.WaitForNode(ctx); err != nil {
		return err
	}
	pods, err := watchPods(ctx, st)
	if err != nil {
		return err
	}
	defer pods.stop()
	m := &rows{s: s, st: st, c: r.Column(agent), pods: pods}
	if err := m.all(ctx); err != nil {
		return fmt.Errorf("%w%s", err, st.Node.Logs(30))
	}
	return nil
}

// all measures the costs without pods first, then what is timed, then the costs
// with pods, and at last the restart of the agent.
func (m *rows) all(ctx context.Context) error {
	many, half := m.s.IdlePods, m.s.IdlePods/2
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"idle without pods", func(ctx context.Context) error { return m.idle(ctx, "0 pods") }},
		{"readiness over HTTP", m.readiness},
		{"readiness by exec", m.flips},
		{"killed containers", m.killed},
		{"changed files", m.files},
		{"idle with half of the pods", func(ctx context.Context) error { return m.idleWith(ctx, "idle", 0, half, false) }},
		{"idle with all pods", func(ctx context.Context) error { return m.idleWith(ctx, "idle", half, many, false) }},
		{"their end", func(ctx context.Context) error { return m.remove(ctx, "idle", many) }},
		{"idle with half of the pods, probed", func(ctx context.Context) error { return m.idleWith(ctx, "probed", 0, half, true) }},
		{"idle with all pods, probed", func(ctx context.Context) error { return m.idleWith(ctx, "probed", half, many, true) }},
		// Last, for an agent that has just been started holds less.
		{"the agent killed", func(ctx context.Context) error { return m.agentKilled(ctx, "probed", many) }},
	} {
		fmt.Fprintf(os.Stderr, "%s %s: %s …\n", time.Now().Format(time.TimeOnly), m.c.Name, part.name)
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}
