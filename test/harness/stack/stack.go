// Package stack brings up what a node runs on, part by part, and takes it away:
// images in a registry, containerd, a control plane, the node. Everything is the
// instance's. It must never install anything, or decide what is run.
package stack

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/registry"
	"github.com/polylet/polylet/test/harness/space"
)

// The agents by name.
const (
	Polylet = "polylet"
	Kubelet = "kubelet"
)

// nodeWithin bounds the wait for the Node to be Ready.
const nodeWithin = time.Minute

// Stack is what was started so far; the rest is nil.
type Stack struct {
	Instance *instance.Instance
	// Space is where the node and its runtime run; nil is the machine itself.
	Space   *space.Space
	Images  *registry.Registry
	Runtime *containerd.Containerd
	Cluster *cluster.Cluster
	Node    *node.Node

	progress io.Writer
	// lan is the stack whose images, cluster and bridge between nodes these are; nil
	// when they are its own.
	lan *Stack
}

// New returns a Stack of nothing but the instance. Lines about builds and starts
// go to progress.
func New(i *instance.Instance, progress io.Writer) *Stack {
	return &Stack{Instance: i, progress: progress}
}

// More pushes further images; dir is for what they are made from.
type More func(ctx context.Context, r *registry.Registry, dir string) error

// StartRuntime starts the registry with the test images, and containerd. Of the
// configuration only what differs from test to test is read.
func (s *Stack) StartRuntime(ctx context.Context, cfg containerd.Config, more ...More) error {
	if err := s.PrepareRuntime(ctx, cfg, more...); err != nil {
		return err
	}
	return s.Runtime.Process.Start(ctx)
}

// PrepareRuntime is StartRuntime with a containerd that is not started.
func (s *Stack) PrepareRuntime(ctx context.Context, cfg containerd.Config, more ...More) error {
	if err := s.StartImages(ctx, more...); err != nil {
		return err
	}
	return s.prepareRuntime(ctx, cfg)
}

// StartImages starts the registry with the test images.
func (s *Stack) StartImages(ctx context.Context, more ...More) error {
	var err error
	if s.Images, err = registry.Start(""); err != nil {
		return err
	}
	for _, push := range append([]More{images.PushAll}, more...) {
		if err := push(ctx, s.Images, s.Instance.Path("images")); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) prepareRuntime(ctx context.Context, cfg containerd.Config) error {
	cfg.Instance, cfg.Registry, cfg.Progress, cfg.Space = s.Instance, s.Images, s.progress, s.Space
	if cfg.PauseImage == "" {
		cfg.PauseImage = images.Pause
	}
	var err error
	s.Runtime, err = containerd.Prepare(ctx, cfg)
	return err
}

// StartCluster starts a control plane.
func (s *Stack) StartCluster(ctx context.Context, cfg cluster.Config) error {
	cfg.Instance, cfg.Progress = s.Instance, s.progress
	var err error
	s.Cluster, err = cluster.Start(ctx, cfg)
	return err
}

// MakeNode configures a node of the agent and starts nothing. What cfg says
// stands; it is told the instance, the runtime and the cluster, and without a
// program one is built.
func (s *Stack) MakeNode(ctx context.Context, agent string, cfg node.Config) error {
	cfg.Instance, cfg.Cluster, cfg.Kubelet, cfg.Space = s.Instance, s.Cluster, agent == Kubelet, s.Space
	if s.Runtime != nil {
		cfg.RuntimeEndpoint = s.Runtime.Endpoint()
	}
	cfg.Split = cfg.Split && !cfg.Kubelet
	var err error
	if cfg.Binary == "" {
		if cfg.Binary, err = s.Binary(ctx, agent); err != nil {
			return err
		}
	}
	s.Node, err = node.New(cfg)
	return err
}

// Binary builds an agent, unless it was, and returns the program.
func (s *Stack) Binary(ctx context.Context, agent string) (string, error) {
	builder, err := programs.New(s.progress)
	if err != nil {
		return "", err
	}
	switch agent {
	case Polylet:
		return builder.Polylet(ctx)
	case Kubelet:
		return builder.Binary(ctx, programs.Kubelet())
	}
	return "", fmt.Errorf("no agent is called %q", agent)
}

// WaitForNode waits until the Node of the name is Ready, a minute at most.
func (s *Stack) WaitForNode(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, nodeWithin)
	defer cancel()
	for {
		last := s.notReady(ctx, name)
		if last == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for node %s to be Ready: %s", name, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// notReady says why the Node is not Ready; empty when it is.
func (s *Stack) notReady(ctx context.Context, name string) string {
	got, err := s.Cluster.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	for _, c := range got.Status.Conditions {
		switch {
		case c.Type != corev1.NodeReady:
		case c.Status == corev1.ConditionTrue:
			return ""
		default:
			return c.Reason + ": " + c.Message
		}
	}
	return "it has no condition Ready"
}

// Stop ends every process in the reverse order; the pods' containers, and what
// lies in the instance, stay. It may be called at any point, and again.
func (s *Stack) Stop() {
	if s.Node != nil {
		s.Node.Stop()
	}
	if s.Cluster != nil && s.lan == nil {
		s.Cluster.Stop()
	}
	if s.Runtime != nil {
		s.Runtime.Close() // the connection only
		s.Runtime.Stop()
	}
	if s.Space != nil {
		s.Space.Stop()
	}
	if s.Images != nil && s.lan == nil {
		s.Images.Close() // ends with the process
	}
}

// Remove stops everything and takes the instance away.
func (s *Stack) Remove() error {
	s.Stop()
	return s.Instance.Remove()
}
