package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/peers"
	"github.com/polylet/polylet/test/harness/registry"
	"github.com/polylet/polylet/test/harness/services"
)

const (
	nodeName = "polylet-e2e"
	// nodeWithin bounds the wait for the Node to be Ready.
	nodeWithin = time.Minute
)

// machine is the one-node cluster that the suite runs against.
type machine struct {
	inst     *instance.Instance
	images   *registry.Registry
	runtime  *containerd.Containerd
	cluster  *cluster.Cluster
	services *services.Services
	node     *node.Node
	agent    string
	// tested names the agent, as of when it was built.
	tested   string
	binaries map[string]string
}

// newMachine builds what is missing and starts everything.
func newMachine(ctx context.Context, o options) (*machine, error) {
	if err := install.Packages(ctx, os.Stdout); err != nil {
		return nil, err
	}
	if err := install.Others(ctx, os.Stdout, images.SuitePackages()); err != nil {
		return nil, err
	}
	if err := install.SharedRoot(); err != nil {
		say("going on without mount propagation: %v", err)
	}
	m := &machine{}
	if err := m.build(ctx, o); err != nil {
		return nil, err
	}
	var err error
	if m.inst, err = instance.New(); err != nil {
		return nil, err
	}
	if err := m.start(ctx, o); err != nil {
		m.keepLogs(o.artifacts)
		m.stop()
		return nil, fmt.Errorf("%w; logs in %s", err, o.artifacts)
	}
	return m, nil
}

func (m *machine) build(ctx context.Context, o options) error {
	builder, err := peers.New(os.Stdout)
	if err != nil {
		return err
	}
	if m.binaries, err = builder.Binaries(ctx, peers.Conformance()...); err != nil {
		return err
	}
	m.tested = describe(ctx, o)
	if o.agent == "kubelet" {
		m.agent, err = builder.Binary(ctx, peers.Kubelet())
	} else {
		m.agent, err = builder.Polylet(ctx)
	}
	return err
}

func (m *machine) start(ctx context.Context, o options) error {
	var err error
	if m.images, err = registry.Start(""); err != nil {
		return err
	}
	say("building the images …")
	dir := m.inst.Path("images")
	if err := images.PushAll(ctx, m.images, dir); err != nil {
		return err
	}
	if err := images.PushSuite(ctx, m.images, dir, m.binaries["agnhost"]); err != nil {
		return err
	}
	m.runtime, err = containerd.Start(ctx, containerd.Config{
		Instance: m.inst, Registry: m.images, PauseImage: images.Pause, Progress: os.Stdout,
	})
	if err != nil {
		return err
	}
	m.cluster, err = cluster.Start(ctx, cluster.Config{Instance: m.inst, Controllers: true, Progress: os.Stdout})
	if err != nil {
		return err
	}
	var overrides map[string]any
	if o.services {
		overrides = services.Overrides(m.inst)
		m.services, err = services.Start(ctx, services.Config{Instance: m.inst, Cluster: m.cluster, Node: nodeName, Progress: os.Stdout})
		if err != nil {
			return err
		}
	}
	m.node, err = node.New(node.Config{
		Instance: m.inst, Binary: m.agent, Name: nodeName, RuntimeEndpoint: m.runtime.Endpoint(),
		Cluster: m.cluster, Kubelet: o.agent == "kubelet", Overrides: overrides, Progress: os.Stdout,
	})
	if err != nil {
		return err
	}
	say("starting %s …", o.agent)
	if err := m.node.Start(ctx); err != nil {
		return err
	}
	return m.waitForNode(ctx)
}

func (m *machine) waitForNode(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodeWithin)
	defer cancel()
	last := "it did not register"
	for {
		got, err := m.cluster.Client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
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
			return fmt.Errorf("wait for node %s to be Ready: %s", nodeName, last)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// describe names the tested program by what it says of itself and by the
// checkout's commit.
func describe(ctx context.Context, o options) string {
	if o.agent == "kubelet" {
		return peers.Kubelet().Name + " " + peers.Kubelet().Version
	}
	commit := "commit " + git(ctx, o.root, "rev-parse", "--short=12", "HEAD")
	if git(ctx, o.root, "status", "--porcelain", "--", "api", "internal", "services", "cmd") != "" {
		commit += " with local changes"
	}
	if given := os.Getenv("POLYLET_BINARY"); given != "" {
		commit = "given as POLYLET_BINARY"
		if from := os.Getenv("POLYLET_BINARY_COMMIT"); from != "" {
			commit = "commit " + from
		}
	}
	return "polylet, " + commit
}

func git(ctx context.Context, dir string, args ...string) string {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// keepLogs copies the logs out of the instance, which is removed.
func (m *machine) keepLogs(dir string) {
	for _, pattern := range []string{"*.log", "node/*.log", "node/config.yaml", "cluster/*.log"} {
		found, err := filepath.Glob(m.inst.Path(pattern))
		if err != nil {
			continue // a bad pattern, which these are not
		}
		for _, from := range found {
			if err := copyFile(from, filepath.Join(dir, filepath.Base(from))); err != nil {
				say("lost a log: %v", err)
			}
		}
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// stop ends everything and removes what the pods have left.
func (m *machine) stop() {
	if m.node != nil {
		m.node.Stop()
	}
	if m.services != nil {
		if err := m.services.Stop(); err != nil {
			say("cleaning up: %v", err)
		}
	}
	if m.cluster != nil {
		m.cluster.Stop()
	}
	if m.runtime != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.runtime.RemovePods(ctx); err != nil {
			say("removing the pods: %v", err)
		}
		m.runtime.Close() // the connection only
		m.runtime.Stop()
	}
	if m.images != nil {
		m.images.Close() // ends with the process
	}
	if err := m.inst.Remove(); err != nil {
		say("cleaning up: %v", err)
	}
}
