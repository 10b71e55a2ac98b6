package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/kubeadm"
	"github.com/polylet/polylet/test/harness/stack"
)

// readyWithin bounds the wait for what kubeadm has made.
const readyWithin = 5 * time.Minute

// runKubeadm has kubeadm make a cluster of nodes, each with namespaces of its own,
// and stays until it is told to stop. Nothing of it is kept.
func runKubeadm(ctx context.Context, o options) (err error) {
	if err := install.Packages(ctx, os.Stdout); err != nil {
		return err
	}
	c, err := kubeadm.New(ctx, kubeadm.Config{Agent: stack.Polylet, Progress: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Remove()) }()
	var first *kubeadm.Node
	for number := 1; number <= o.nodes; number++ {
		n, err := c.Add(ctx, fmt.Sprintf("polylet-%d", number))
		if err != nil {
			return err
		}
		if first == nil {
			first = n
		}
		if err := bringIn(ctx, c, n, first); err != nil {
			return fmt.Errorf("%w\nwhat the node's polylet says is in %s", err, n.Instance.Path("kubelet.log"))
		}
	}
	kubectl, err := linkKubectl(c.Kubectl)
	if err != nil {
		return err
	}
	say("\nA cluster is running that kubeadm has made; nodes: %d. Its kubeconfig:\n  export KUBECONFIG=%s", o.nodes, c.AdminKubeconfig)
	say("Try:")
	say("  %s get nodes -o wide", kubectl)
	say("  %s get pods -A -o wide", kubectl)
	say("  %s create deployment web --image %s --replicas 4 -- /testapp http port=8080", kubectl, images.TestApp)
	for _, n := range c.Nodes {
		say("  %s   # kubeadm, kubectl and systemctl on %s", n.Enter(), n.Name)
	}
	say("Ctrl-C ends the cluster and removes all of it.")
	if o.once {
		return nil
	}
	<-ctx.Done()
	return nil
}

// bringIn makes the cluster with its first node, and joins any other.
func bringIn(ctx context.Context, c *kubeadm.Cluster, n, first *kubeadm.Node) error {
	var err error
	if n == first {
		say("kubeadm init on %s …", n.Name)
		_, err = c.Init(ctx, n)
	} else {
		say("kubeadm join on %s …", n.Name)
		_, err = c.Join(ctx, n, first)
	}
	if err != nil {
		return err
	}
	if err := c.Connect(ctx, c.Nodes...); err != nil {
		return err
	}
	say("waiting for node %s to be Ready …", n.Name)
	deadline := time.Now().Add(readyWithin)
	for {
		why := c.NotReady(ctx, n)
		if why == "" {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("node %s is not Ready: %s", n.Name, why)
		}
		time.Sleep(500 * time.Millisecond)
	}
}
