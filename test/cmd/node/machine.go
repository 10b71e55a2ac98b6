package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/peers"
	"github.com/polylet/polylet/test/harness/registry"
)

// machine is what a node needs below it, and the node.
type machine struct {
	inst    *instance.Instance
	images  *registry.Registry
	runtime *containerd.Containerd
	cluster *cluster.Cluster
	node    *node.Node
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
	builder, err := peers.New(os.Stdout)
	if err != nil {
		return nil, err
	}
	m := &machine{options: o}
	if m.polylet, err = builder.Polylet(ctx); err != nil {
		return nil, err
	}
	if m.inst, err = instance.Named(id, true); err != nil {
		return nil, err
	}
	if err := m.startRuntime(ctx); err != nil {
		m.stop()
		return nil, err
	}
	return m, nil
}

func (m *machine) startRuntime(ctx context.Context) error {
	var err error
	if m.images, err = registry.Start(""); err != nil {
		return err
	}
	say("building the test images …")
	if err := images.PushAll(ctx, m.images, m.inst.Path("images")); err != nil {
		return err
	}
	m.runtime, err = containerd.Start(ctx, containerd.Config{
		Instance: m.inst, Registry: m.images, Version: m.options.containerd, PauseImage: images.Pause, Progress: os.Stdout,
	})
	if err != nil {
		return err
	}
	say("containerd is ready, log in %s", m.runtime.LogFile())
	return nil
}

func (m *machine) startNode(ctx context.Context, cfg node.Config) error {
	cfg.Instance, cfg.Binary, cfg.RuntimeEndpoint, cfg.Progress = m.inst, m.polylet, m.runtime.Endpoint(), os.Stdout
	// The kubelet's own ports where they are free, for they are what people type.
	cfg.Port, cfg.ReadOnlyPort, cfg.HealthzPort = ifFree(10250), ifFree(10255), ifFree(10248)
	var err error
	if m.node, err = node.New(cfg); err != nil {
		return err
	}
	say("starting polylet …")
	return m.node.Start(ctx)
}

// stop ends every process in the reverse order; the pods' containers stay.
func (m *machine) stop() {
	if m.node != nil {
		m.node.Stop()
	}
	if m.cluster != nil {
		m.cluster.Stop()
	}
	if m.runtime != nil {
		m.runtime.Stop()
		m.runtime.Close()
	}
	if m.images != nil {
		m.images.Close() // ends with the process
	}
	m.inst.Release()
}

// wait returns when the person has had enough, or when the node has ended.
func (m *machine) wait(ctx context.Context) error {
	if m.options.once {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-m.node.Processes["run"].Done():
		return fmt.Errorf("polylet ended by itself (%v); see %s", m.node.Processes["run"].ExitErr(), m.node.Processes["run"].LogFile())
	}
}

func (m *machine) sayGoodbye(what string) {
	say("\nstopped %s. What stays, so that it goes on where it was with the next start:", what)
	say("  the pods' containers (nothing supervises them now), and everything in %s", m.inst.Dir)
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
