package pods

import (
	"context"
	"fmt"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
	"github.com/polylet/polylet/test/harness/install"
)

// runtimeAlone is the column of the runtime without an agent.
const runtimeAlone = "runtime alone"

// measure measures one agent on a fresh stage, and the runtime alone on the
// same stage before the agent is started.
func measure(ctx context.Context, s Settings, agent string, r *report.Results) error {
	if err := install.Check(); err != nil {
		return err
	}
	st := &stage.Stage{}
	defer st.Close()
	if err := st.Open(ctx, agent); err != nil {
		return err
	}
	if !s.Memory {
		if err := measureRuntime(ctx, s, st, r.Column(runtimeAlone)); err != nil {
			return fmt.Errorf("the runtime alone: %w", err)
		}
	}
	if err := st.Node.Start(ctx); err != nil {
		return err
	}
	if s.Memory {
		return measureMemory(ctx, s, st, r.Column(agent))
	}
	return measureNode(ctx, s, st, r.Column(agent))
}
