// Package stage brings up what is measured, on a machine of its own, and makes pods
// on it. It must never measure anything.
package stage

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/stack"
)

const (
	// NodeName is the measured node's.
	NodeName = "bench-node"
	// Settle is how long a fresh node is left alone before it is measured.
	Settle = 5 * time.Second
)

// Stage is everything that one measurement runs on.
type Stage struct {
	*stack.Stack
	// Counted has the apiserver and the runtime count what is asked of them.
	Counted bool
}

// Open starts everything but the node, which is configured. What was started is
// Close's, also after an error.
func (st *Stage) Open(ctx context.Context, agent string) error {
	i, err := instance.New()
	if err != nil {
		return err
	}
	st.Stack = stack.New(i, os.Stderr)
	if err := st.StartRuntime(ctx, containerd.Config{Metrics: st.Counted}); err != nil {
		return err
	}
	if err := st.StartCluster(ctx, cluster.Config{Audit: st.Counted}); err != nil {
		return err
	}
	cfg := node.Config{Name: NodeName, Split: true, Overrides: map[string]any{"containerLogMaxSize": "1Gi"}}
	if _, given, named := strings.Cut(agent, "="); named {
		agent, cfg.Binary = stack.Polylet, given
	}
	if agent == stack.Kubelet {
		// Its cAdvisor would know names from containerd's usual socket only.
		cfg.Flags = []string{"--containerd=" + st.Runtime.Socket}
	}
	return st.MakeNode(ctx, agent, cfg)
}

// WaitForNode waits until the Node is Ready, a minute at most.
func (st *Stage) WaitForNode(ctx context.Context) error {
	if err := st.Stack.WaitForNode(ctx, NodeName); err != nil {
		return fmt.Errorf("%w%s", err, st.Node.Logs(20))
	}
	return nil
}

// Close ends and removes everything.
func (st *Stage) Close() {
	if st.Stack == nil {
		return
	}
	if err := st.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
