package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/workspace"
)

// runCluster brings up a control plane with one node and stays until it is told
// to stop.
func runCluster(ctx context.Context, o options) error {
	m, err := newMachine(ctx, "cluster", o)
	if err != nil {
		return err
	}
	defer m.stop()
	if err := m.StartCluster(ctx, cluster.Config{Controllers: true, Port: ifFree(6443)}); err != nil {
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
	kubectl, err := linkKubectl(m.Cluster.Kubectl)
	if err != nil {
		return err
	}
	say("\nA cluster with one node is running. Its kubeconfig:\n  export KUBECONFIG=%s", m.Cluster.AdminKubeconfig)
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
