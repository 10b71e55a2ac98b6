package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/stack"
)

// machine is what a node needs below it, and the node.
type machine struct {
	*stack.Stack
	// others are the machines of further nodes; nothing of them is kept.
	others  []*stack.Stack
	polylet string
	options options
}

// say prints one line of progress.
func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// newMachine installs, builds and starts everything below the node.
func newMachine(ctx context.Context, id string, o options) (*machine, error) {
	if err := install.Packages(ctx, os.Stdout); err != nil {
		return nil, err
	}
	if err := install.SharedRoot(); err != nil {
		say("going on without mount propagation: %v", err)
	}
	builder, err := programs.New(os.Stdout)
	if err != nil {
		return nil, err
	}
	m := &machine{options: o}
	if m.polylet, err = builder.Polylet(ctx); err != nil {
		return nil, err
	}
	i, err := instance.Kept(id)
	if err != nil {
		return nil, err
	}
	m.Stack = stack.New(i, os.Stdout)
	if err := m.startRuntime(ctx); err != nil {
		m.stop()
		return nil, err
	}
	return m, nil
}

func (m *machine) startRuntime(ctx context.Context) error {
	say("building the test images …")
	if err := m.StartRuntime(ctx, containerd.Config{Version: m.options.containerd}); err != nil {
		return err
	}
	say("containerd is ready, log in %s", m.Runtime.LogFile())
	return nil
}

func (m *machine) startNode(ctx context.Context, cfg node.Config) error {
	cfg.Binary = m.polylet
	// The kubelet's own ports where they are free, for they are what people type.
	cfg.Port, cfg.ReadOnlyPort, cfg.HealthzPort = ifFree(10250), ifFree(10255), ifFree(10248)
	if err := m.MakeNode(ctx, stack.Polylet, cfg); err != nil {
		return err
	}
	say("starting polylet …")
	return m.Node.Start(ctx)
}

// stop ends every process; the pods' containers of the first node stay.
func (m *machine) stop() {
	for _, other := range m.others {
		if err := other.Remove(); err != nil {
			say("%v", err)
		}
	}
	m.others = nil
	m.Stop()
	m.Instance.Release()
}

// wait returns when the person has had enough, or when the node has ended.
func (m *machine) wait(ctx context.Context) error {
	if m.options.once {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-m.Node.Processes["run"].Done():
		return fmt.Errorf("polylet ended by itself (%v); see %s", m.Node.Processes["run"].ExitErr(), m.Node.Processes["run"].LogFile())
	}
}

func (m *machine) sayGoodbye(what string) {
	say("\nstopped %s. What stays, so that it goes on where it was with the next start:", what)
	say("  the pods' containers (nothing supervises them now), and everything in %s", m.Instance.Dir)
	say("  remove all of it with: make clean-node")
}

// ifFree returns the port, or zero when somebody listens there.
func ifFree(port int) int {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return 0
	}
	l.Close()
	return port
}
