// Package kubeadm_test runs the real kubeadm on machines whose agent is polylet
// under the name kubelet. It needs root and minutes, so it runs only when
// POLYLET_NODE_TESTS is set. It must never help kubeadm over what a user would stumble on.
package kubeadm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/kubeadm"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/realtest"
	"github.com/polylet/polylet/test/harness/stack"
)

// testWithin bounds one test.
const testWithin = 25 * time.Minute

// stage is what a test runs on.
type stage struct {
	*testing.T
	ctx     context.Context
	cluster *kubeadm.Cluster
}

func build(t *testing.T) *stage {
	t.Helper()
	ctx := realtest.Begin(t, "runs real containers as root and takes minutes", testWithin)
	agent := os.Getenv("POLYLET_TEST_AGENT")
	if agent == "" {
		agent = stack.Polylet
	}
	c, err := kubeadm.New(ctx, kubeadm.Config{Agent: agent, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{T: t, ctx: ctx, cluster: c}
	t.Cleanup(s.remove)
	return s
}

// remove takes everything away and keeps the logs of a failed test.
func (s *stage) remove() {
	if s.Failed() {
		for _, n := range s.cluster.Nodes {
			dir := realtest.KeepLogs(s, n.Instance, n.Name, "*.log")
			s.Logf("logs of %s are kept in %s; its kubelet's end with:\n%s", n.Name, dir, process.Tail(n.Instance.Path("kubelet.log"), 30))
		}
	}
	if err := s.cluster.Remove(); err != nil {
		s.Error(err)
	}
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// eventually asks until the check returns nil, and fails with its last error.
func (s *stage) eventually(within time.Duration, what string, check func() error) {
	s.Helper()
	took := realtest.Eventually(s.ctx, s, within, 100*time.Millisecond, what, check)
	s.Logf("%s after %s", what, took.Round(time.Millisecond))
}

func (s *stage) add(name string) *kubeadm.Node {
	s.Helper()
	n, err := s.cluster.Add(s.ctx, name)
	s.must(err)
	return n
}

func (s *stage) waitReady(n *kubeadm.Node) {
	s.Helper()
	s.eventually(3*time.Minute, "node "+n.Name+" is Ready", func() error {
		if why := s.cluster.NotReady(s.ctx, n); why != "" {
			return errors.New(why)
		}
		return nil
	})
}

// waitPods waits until as many pods of kube-system with the label are Ready on the
// node; an empty node is any.
func (s *stage) waitPods(label, node string, many int) []corev1.Pod {
	s.Helper()
	var ready []corev1.Pod
	s.eventually(4*time.Minute, fmt.Sprintf("pods %s ready on node %q: %d", label, node, many), func() error {
		list, err := s.cluster.Client.CoreV1().Pods(metav1.NamespaceSystem).List(s.ctx, metav1.ListOptions{LabelSelector: label})
		if err != nil {
			return err
		}
		ready = nil
		for _, p := range list.Items {
			if (node == "" || p.Spec.NodeName == node) && isReady(&p) {
				ready = append(ready, p)
			}
		}
		if len(ready) != many {
			return fmt.Errorf("%d of %d are ready: %s", len(ready), many, describe(list.Items))
		}
		return nil
	})
	return ready
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func describe(pods []corev1.Pod) string {
	var lines []string
	for _, p := range pods {
		line := fmt.Sprintf("%s on %s is %s", p.Name, p.Spec.NodeName, p.Status.Phase)
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil {
				line += ": " + w.Reason + " " + w.Message
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}
