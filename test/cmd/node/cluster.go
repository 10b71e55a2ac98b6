package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/stack"
	"github.com/polylet/polylet/test/harness/workspace"
)

// runCluster brings up a control plane with one node, or more, and stays until it
// is told to stop.
func runCluster(ctx context.Context, o options) error {
	m, err := newMachine(ctx, "cluster", o)
	if err != nil {
		return err
	}
	defer m.stop()
	start := m.StartCluster
	if o.nodes > 1 {
		start = m.StartSharedCluster
	}
	if err := start(ctx, cluster.Config{Controllers: true, Port: ifFree(6443)}); err != nil {
		return err
	}
	name := "polylet-dev"
	if err := m.startNode(ctx, node.Config{Name: name}); err != nil {
		return err
	}
	say("waiting for the node to be Ready …")
	if err := m.WaitForNode(ctx, name); err != nil {
		return fmt.Errorf("%w; see %s", err, m.Node.Processes["run"].LogFile())
	}
	for n := 2; n <= o.nodes; n++ {
		if err := m.join(ctx, fmt.Sprintf("%s-%d", name, n), n); err != nil {
			return err
		}
	}
	kubectl, err := linkKubectl(m.Cluster.Kubectl)
	if err != nil {
		return err
	}
	say("\nA cluster is running; nodes: %d. Its kubeconfig:\n  export KUBECONFIG=%s", o.nodes, m.Cluster.AdminKubeconfig)
	say("Try:")
	say("  %s get nodes -o wide", kubectl)
	say("  %s run web --image %s --port 8080 -- http port=8080", kubectl, images.TestApp)
	say("  %s logs -f web", kubectl)
	say("  %s run box --image %s -- sleep 3600 && %s exec -it box -- sh", kubectl, images.BusyBox, kubectl)
	say("  %s port-forward pod/web 8080:8080", kubectl)
	say("  bin/polylet pods --socket-dir %s", m.Node.SocketDir)
	say("Ctrl-C stops the cluster.")
	err = m.wait(ctx)
	m.stop()
	m.sayGoodbye("the cluster")
	return err
}

// join adds a node with namespaces of its own.
func (m *machine) join(ctx context.Context, name string, number int) error {
	say("starting node %s …", name)
	i, err := instance.New()
	if err != nil {
		return err
	}
	second, err := m.Second(ctx, i, name, number, containerd.Config{Version: m.options.containerd})
	if err != nil {
		return errors.Join(err, i.Remove())
	}
	m.others = append(m.others, second)
	// The kubelet's own ports: no other node has them there.
	if err := second.MakeNode(ctx, stack.Polylet, node.Config{Binary: m.polylet, Name: name, Port: 10250, ReadOnlyPort: 10255, HealthzPort: 10248}); err != nil {
		return err
	}
	if err := second.Node.Start(ctx); err != nil {
		return err
	}
	if err := m.WaitForNode(ctx, name); err != nil {
		return fmt.Errorf("%w; see %s", err, second.Node.Processes["run"].LogFile())
	}
	return nil
}

// linkKubectl puts kubectl into the checkout's bin directory.
func linkKubectl(path string) (string, error) {
	root, err := workspace.Root()
	if err != nil {
		return "", err
	}
	link := filepath.Join(root, "bin", "kubectl")
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return "", err
	}
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		return "", err
	}
	if err := os.Symlink(path, link); err != nil {
		return "", fmt.Errorf("link kubectl: %w", err)
	}
	return "bin/kubectl", nil
}
