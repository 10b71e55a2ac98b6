// Package node_test runs whole nodes on real parts: containerd, runc, CNI, etcd
// and kube-apiserver. It needs root and minutes, so it runs only when
// POLYLET_NODE_TESTS is set. It must never have a double where a user has the real part.
package node_test

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/realtest"
	"github.com/polylet/polylet/test/harness/registry"
	"github.com/polylet/polylet/test/harness/stack"
)

// testWithin bounds one test; the longest is the kill test.
const testWithin = 12 * time.Minute

// nodeName is the name of every test's node.
const nodeName = "test-node"

// house is everything that one test runs on.
type house struct {
	*testing.T
	ctx     context.Context
	inst    *instance.Instance
	images  *registry.Registry
	runtime *containerd.Containerd
	cluster *cluster.Cluster
	node    *node.Node
	stack   *stack.Stack
	// bootstrap is the node's bootstrap kubeconfig; empty: it has a kubeconfig.
	bootstrap string
	// binary is the agent under test.
	binary string
	// csiName is the name of the CSI driver that csiWith starts.
	csiName string
}

// plan says which parts a test wants; the zero value is a whole cluster with
// polylet's five processes each by itself.
type plan struct {
	// pageAddress is host:port of the node's page; empty for none.
	pageAddress string

	standalone  bool
	audit       bool // the apiserver writes down what nodes ask for
	controllers bool
	supervised  bool
	noRuntime   bool // containerd is prepared and not started
	kubelet     bool // the agent is the kubelet, whatever the others are
	noNode      bool // polylet is configured and not started
	bootstrap   bool // the node gets its certificates by itself
	signing     time.Duration
	gates, apis []string // of the apiserver
	overrides   map[string]any
	flags       []string      // further flags of the node
	prepare     func(*house)  // runs before the node's configuration is read
	within      time.Duration // bounds the test; testWithin when zero
}

// build brings up the parts and takes them away when the test ends.
func build(t *testing.T, p plan) *house {
	t.Helper()
	if p.within == 0 {
		p.within = testWithin
	}
	h := &house{T: t, csiName: csiDriver, ctx: realtest.Begin(t, "runs real containers as root and takes minutes", p.within)}
	h.ground()
	cluster := h.startCluster(p) // which takes longest
	h.buildRuntime(p)
	h.must(<-cluster)
	h.cluster = h.stack.Cluster
	if p.prepare != nil {
		p.prepare(h)
	}
	h.buildNode(p)
	return h
}

// story is one of several that are played on one house.
type story struct {
	name string
	tell func(*house)
}

// play plays stories one after the other, each as a test of its own.
func (h *house) play(stories []story) {
	h.Helper()
	for _, s := range stories {
		h.Run(s.name, func(t *testing.T) {
			part := *h
			part.T = t
			s.tell(&part)
		})
	}
}

// onKubelet says that the tests run on the upstream kubelet instead of polylet.
func onKubelet() bool { return os.Getenv("POLYLET_TEST_AGENT") == "kubelet" }

// ground makes the instance, and with it what stops and removes all that is in it.
func (h *house) ground() {
	h.Helper()
	inst, err := instance.New()
	h.must(err)
	h.inst = inst
	h.Cleanup(h.remove)
	h.stack = stack.New(inst, os.Stderr)
	h.Cleanup(h.stack.Stop)
	h.must(install.SharedRoot())
}

// startCluster starts the cluster, and says when it is there.
func (h *house) startCluster(p plan) <-chan error {
	h.Helper()
	started, done := make(chan error, 1), make(chan struct{})
	h.Cleanup(func() {
		<-done // so that Cluster is what was started
		if h.stack.Cluster != nil {
			h.stack.Cluster.Kill()
		}
	})
	go func() {
		defer close(done)
		if p.standalone {
			started <- nil
			return
		}
		started <- h.stack.StartCluster(h.ctx, cluster.Config{
			Controllers: p.controllers, Audit: p.audit, SigningDuration: p.signing, VerifyNodes: p.signing > 0, Gates: p.gates, APIs: p.apis,
		})
	}()
	return started
}

func (h *house) buildRuntime(p plan) {
	h.Helper()
	h.must(h.stack.PrepareRuntime(h.ctx, containerd.Config{
		Version: containerd.Version(os.Getenv("POLYLET_TEST_CONTAINERD")), Runc: os.Getenv("POLYLET_TEST_RUNC"),
	}))
	h.images, h.runtime = h.stack.Images, h.stack.Runtime
	if !p.noRuntime {
		h.must(h.runtime.Process.Start(h.ctx))
	}
}

func (h *house) buildNode(p plan) {
	h.Helper()
	h.prepareNode(p)
	if p.noNode {
		return
	}
	h.must(h.node.Start(h.ctx))
	if h.cluster != nil {
		h.waitNodeReady()
	}
}

// prepareNode configures the node and starts nothing.
func (h *house) prepareNode(p plan) {
	h.Helper()
	// The tests are proven against the kubelet first: what it fails is the
	// test's fault.
	agent := stack.Polylet
	if onKubelet() || p.kubelet {
		agent = stack.Kubelet
	}
	var err error
	h.binary, err = h.stack.Binary(h.ctx, agent)
	h.must(err)
	if p.bootstrap && h.bootstrap == "" {
		h.bootstrap, err = h.cluster.BootstrapKubeconfig(h.ctx, "abcdef", time.Hour)
		h.must(err)
	}
	h.must(h.stack.MakeNode(h.ctx, agent, node.Config{
		Bootstrap: h.bootstrap,
		Binary:    h.binary, Name: nodeName, Split: !p.supervised, Overrides: p.overrides, Flags: p.flags, PageAddress: p.pageAddress,
	}))
	h.node = h.stack.Node
	h.Cleanup(h.node.Stop)
}

// remove takes the instance away and keeps the logs of a failed test.
func (h *house) remove() {
	if h.Failed() || os.Getenv("POLYLET_TEST_KEEP_LOGS") != "" {
		if h.node != nil {
			h.Log(h.node.Logs(40))
		}
		h.Logf("all logs are kept in %s", realtest.KeepLogs(h, h.inst, "", "*.log", "node/*", "cluster/*.log"))
	}
	if err := h.inst.Remove(); err != nil {
		h.Error(err)
	}
}

func (h *house) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// eventually asks until the check returns nil, and fails with its last error.
func (h *house) eventually(within time.Duration, what string, check func() error) {
	h.Helper()
	took := realtest.Eventually(h.ctx, h, within, 50*time.Millisecond, what, check)
	h.Logf("%s after %s", what, took.Round(time.Millisecond))
}

// quietly is eventually without a line in the log.
func (h *house) quietly(within time.Duration, what string, check func() error) {
	h.Helper()
	realtest.Eventually(h.ctx, h, within, 50*time.Millisecond, what, check)
}

func (h *house) waitNodeReady() {
	h.Helper()
	h.eventually(90*time.Second, "the Node is Ready", func() error {
		n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return boolError(c.Status == corev1.ConditionTrue, "Ready is %s: %s: %s", c.Status, c.Reason, c.Message)
			}
		}
		return boolError(false, "no Ready condition")
	})
}
