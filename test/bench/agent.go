package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/peers"
	"github.com/polylet/polylet/test/harness/registry"
)

const (
	nodeName = "bench-node"
	// settle is how long a fresh node is left alone before it is measured.
	settle = 5 * time.Second
	// runtimeAlone is the column of the runtime without an agent.
	runtimeAlone = "runtime alone"
)

// stage is everything that one measurement runs on.
type stage struct {
	inst    *instance.Instance
	images  *registry.Registry
	runtime *containerd.Containerd
	cluster *cluster.Cluster
	node    *node.Node
	// counted has the apiserver and the runtime count what is asked of them.
	counted bool
}

// measureAgent measures one agent on a fresh stage, and the runtime alone on the
// same stage before the agent is started.
func measureAgent(ctx context.Context, s settings, agent string, r *results) error {
	if err := install.Check(); err != nil {
		return err
	}
	st := &stage{}
	defer st.close()
	if err := st.open(ctx, agent); err != nil {
		return err
	}
	if !s.memory && !s.api {
		if err := measureRuntime(ctx, s, st, r.column(runtimeAlone)); err != nil {
			return fmt.Errorf("the runtime alone: %w", err)
		}
	}
	if err := st.node.Start(ctx); err != nil {
		return err
	}
	if s.memory {
		return measureMemory(ctx, s, st, r.column(agent))
	}
	if s.api {
		return measureAPI(ctx, s, st, r.column(agent))
	}
	return measureNode(ctx, s, st, r.column(agent))
}

func (st *stage) open(ctx context.Context, agent string) error {
	var err error
	if st.inst, err = instance.New(); err != nil {
		return err
	}
	if st.images, err = registry.Start(""); err != nil {
		return err
	}
	if err := images.PushAll(ctx, st.images, st.inst.Path("images")); err != nil {
		return err
	}
	st.runtime, err = containerd.Start(ctx, containerd.Config{
		Instance: st.inst, Registry: st.images, PauseImage: images.Pause, Progress: os.Stderr, Metrics: st.counted,
	})
	if err != nil {
		return err
	}
	if st.cluster, err = cluster.Start(ctx, cluster.Config{Instance: st.inst, Progress: os.Stderr, Audit: st.counted}); err != nil {
		return err
	}
	builder, err := peers.New(os.Stderr)
	if err != nil {
		return err
	}
	cfg := node.Config{
		Instance: st.inst, Name: nodeName, RuntimeEndpoint: st.runtime.Endpoint(), Cluster: st.cluster,
		Progress: os.Stderr, Overrides: map[string]any{"containerLogMaxSize": "1Gi"},
	}
	_, given, named := strings.Cut(agent, "=")
	switch {
	case named:
		cfg.Split, cfg.Binary = true, given
	case agent == "polylet":
		cfg.Split = true
		cfg.Binary, err = builder.Polylet(ctx)
	case agent == "kubelet":
		cfg.Kubelet = true
		// Its cAdvisor would know names from containerd's usual socket only.
		cfg.Flags = []string{"--containerd=" + st.runtime.Socket}
		cfg.Binary, err = builder.Binary(ctx, peers.Kubelet())
	default:
		err = fmt.Errorf("no agent is called %q", agent)
	}
	if err != nil {
		return err
	}
	st.node, err = node.New(cfg)
	return err
}

func (st *stage) close() {
	if st.node != nil {
		st.node.Stop()
	}
	if st.cluster != nil {
		st.cluster.Stop()
	}
	if st.runtime != nil {
		st.runtime.Close()
		st.runtime.Stop()
	}
	if st.images != nil {
		st.images.Close() // ends with the process
	}
	if st.inst != nil {
		if err := st.inst.Remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
