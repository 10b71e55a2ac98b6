package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/workspace"
)

// nodeWithin bounds the wait for the Node to be Ready.
const nodeWithin = time.Minute

// runCluster brings up a control plane with one node and stays until it is told
// to stop.
func runCluster(ctx context.Context, o options) error {
	m, err := newMachine(ctx, "cluster", o)
	if err != nil {
		return err
	}
	defer m.stop()
	m.cluster, err = cluster.Start(ctx, cluster.Config{Instance: m.inst, Controllers: true, Port: ifFree(6443), Progress: os.Stdout})
	if err != nil {
		return err
	}
	name := "polylet-dev"
	if err := m.startNode(ctx, node.Config{Name: name, Cluster: m.cluster}); err != nil {
		return err
	}
	say("waiting for the node to be Ready …")
	if err := waitForNode(ctx, m.cluster, name); err != nil {
		return fmt.Errorf("%w; see %s", err, m.node.Processes["run"].LogFile())
	}
	kubectl, err := linkKubectl(m.cluster.Kubectl)
	if err != nil {
		return err
	}
	say("\nA cluster with one node is running. Its kubeconfig:\n  export KUBECONFIG=%s", m.cluster.AdminKubeconfig)
	say("Try:")
	say("  %s get nodes -o wide", kubectl)
	say("  %s run web --image %s --port 8080 -- http port=8080", kubectl, images.TestApp)
	say("  %s logs -f web", kubectl)
	say("  %s run box --image %s -- sleep 3600 && %s exec -it box -- sh", kubectl, images.BusyBox, kubectl)
	say("  %s port-forward pod/web 8080:8080", kubectl)
	say("  bin/polylet pods --socket-dir %s", m.node.SocketDir)
	say("Ctrl-C stops the cluster.")
	err = m.wait(ctx)
	m.stop()
	m.sayGoodbye("the cluster")
	return err
}

func waitForNode(ctx context.Context, c *cluster.Cluster, name string) error {
	ctx, cancel := context.WithTimeout(ctx, nodeWithin)
	defer cancel()
	last := "it did not register"
	for {
		got, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			for _, condition := range got.Status.Conditions {
				if condition.Type == corev1.NodeReady {
					if condition.Status == corev1.ConditionTrue {
						return nil
					}
					last = condition.Reason + ": " + condition.Message
				}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for node %s to be Ready: %s", name, last)
		case <-time.After(200 * time.Millisecond):
		}
	}
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
