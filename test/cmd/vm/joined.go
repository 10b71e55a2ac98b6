package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/instance"
)

// What the other machine knows of the control plane: its address there, and the node's
// name, which is the machine's.
const (
	reachedAt = "10.0.2.100:6443"
	joined    = "polylet-vm"
)

// join starts a control plane and puts into the payload what a node needs of it. after
// ends it.
func join(ctx context.Context, payload string) (c *cluster.Cluster, after func(), err error) {
	inst, err := instance.New()
	if err != nil {
		return nil, nil, err
	}
	if c, err = cluster.Start(ctx, cluster.Config{Instance: inst, Progress: os.Stdout}); err != nil {
		return nil, nil, errors.Join(err, inst.Remove())
	}
	after = func() {
		c.Kill()
		if err := inst.Remove(); err != nil {
			fmt.Fprintln(os.Stderr, "left behind:", err)
		}
	}
	node, err := c.NodeKubeconfig(joined)
	for name, from := range map[string]string{"node.kubeconfig": node, "admin.kubeconfig": c.AdminKubeconfig} {
		if err == nil {
			err = elsewhere(from, filepath.Join(payload, name))
		}
	}
	if err != nil {
		after()
		return nil, nil, err
	}
	return c, after, nil
}

// elsewhere writes a kubeconfig as it is used on the other machine: with all files in it.
func elsewhere(from, to string) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	for _, c := range config.Clusters {
		c.Server, c.TLSServerName = "https://"+reachedAt, "127.0.0.1"
	}
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return err
	}
	return clientcmd.WriteToFile(*config, to)
}

// judgeShutdown wants the last statuses of the pods of a machine that is off: the
// apiserver has them from before.
func judgeShutdown(ctx context.Context, c *cluster.Cluster) error {
	const message = "Pod was terminated in response to imminent node shutdown."
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "goes=down"})
	if err != nil {
		return err
	}
	ends := map[string]metav1.Time{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Terminated" || p.Status.Message != message {
			err = errors.Join(err, fmt.Errorf("pod %s is %s, %q, %q", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message))
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Terminated == nil {
				err = errors.Join(err, fmt.Errorf("pod %s: %+v", p.Name, s.State))
				continue
			}
			ends[p.Name] = s.State.Terminated.FinishedAt
		}
	}
	order := []string{"low", "high", "critical"}
	for i, name := range order {
		at, ended := ends[name]
		if !ended {
			err = errors.Join(err, fmt.Errorf("pod %s has no end: %v", name, ends))
		} else if before := ends[order[max(i-1, 0)]]; i > 0 && at.Sub(before.Time) < 2*time.Second { // each takes three
			err = errors.Join(err, fmt.Errorf("pod %s ended at %s, not after %s, at %s", name, at, order[i-1], before))
		}
	}
	node, nodeErr := c.Client.CoreV1().Nodes().Get(ctx, joined, metav1.GetOptions{})
	if nodeErr != nil {
		return errors.Join(err, nodeErr)
	}
	told := false
	for _, c := range node.Status.Conditions {
		told = told || c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "node is shutting down")
	}
	if !told {
		err = errors.Join(err, fmt.Errorf("the Node does not say that it shuts down: %+v", node.Status.Conditions))
	}
	return err
}
