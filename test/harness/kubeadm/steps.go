package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/registry"
)

// ignored are the checks of kubeadm that a machine without systemd, with cgroup v1
// and without its kernel's configuration does not pass, whatever its agent is.
const ignored = "--ignore-preflight-errors=SystemVerification,FileContent--proc-sys-net-bridge-bridge-nf-call-iptables"

// registration is what kubeadm is told of a node: its runtime's socket, and what of
// the agent's flags is the machine's.
func (n *Node) registration() string {
	return fmt.Sprintf(`nodeRegistration:
  name: %s
  criSocket: %s
  imagePullPolicy: IfNotPresent
  kubeletExtraArgs:
  - name: cgroup-root
    value: %s
  - name: node-ip
    value: %s
# Two processors may be busy with other things.
timeouts:
  controlPlaneComponentHealthCheck: 8m0s
  kubeletHealthCheck: 8m0s
  tlsBootstrap: 8m0s
  discovery: 8m0s
`, n.Name, n.Runtime.Endpoint(), n.Instance.CgroupRoot(), n.Address)
}

// initConfiguration is what kubeadm init is told. The eviction thresholds are low,
// and images are kept, because a test machine's disk is shared; kube-proxy leaves
// the connection tracking alone, which is the machine's.
func (n *Node) initConfiguration() string {
	return `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint:
  advertiseAddress: ` + n.Address + `
patches:
  directory: ` + n.Instance.Path("home", "patches") + `
` + n.registration() + `---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: ` + programs.KubeAPIServer().Version + `
imageRepository: ` + registry.LocalName + `
networking:
  podSubnet: ` + PodCIDR + `
etcd:
  local:
    extraArgs:
    # A test's data need not survive the machine's crash.
    - name: unsafe-no-fsync
      value: "true"
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 50Mi
  nodefs.available: 64Mi
  nodefs.inodesFree: "1000"
  imagefs.available: 64Mi
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
conntrack:
  maxPerCore: 0
  tcpCloseWaitTimeout: 0s
  tcpEstablishedTimeout: 0s
`
}

// PatchedPods is how many pods the first node has room for: of its configuration, and not
// of the cluster's, since kubeadm patches it.
const PatchedPods = 66

// Init runs kubeadm init on a node and reads back what an administrator gets.
func (c *Cluster) Init(ctx context.Context, n *Node) (string, error) {
	file, patch := n.Instance.Path("home", "init.yaml"), n.Instance.Path("home", "patches", "kubeletconfiguration.yaml")
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(patch), 0o700),
		os.WriteFile(patch, fmt.Appendf(nil, "maxPods: %d\n", PatchedPods), 0o600),
		os.WriteFile(file, []byte(n.initConfiguration()), 0o600),
	); err != nil {
		return "", err
	}
	out, err := n.Kubeadm(ctx, "init", "--config="+file, ignored)
	if err != nil {
		return out, err
	}
	return out, c.Readopt(n)
}

// Token makes a bootstrap token on a node and returns what kubeadm says to type on
// one that joins: the endpoint, the token and the authority's hash.
func (c *Cluster) Token(ctx context.Context, n *Node) (endpoint, token, hash string, err error) {
	out, err := n.Kubeadm(ctx, "token", "create", "--print-join-command")
	if err != nil {
		return "", "", "", err
	}
	for _, line := range strings.Split(out, "\n") {
		if words := strings.Fields(line); len(words) == 7 && words[1] == "join" {
			return words[2], words[4], words[6], nil
		}
	}
	return "", "", "", fmt.Errorf("kubeadm prints no command to join with:\n%s", out)
}

// joinTimeout is how long kubeadm join waits for the agent's certificate.
const joinTimeout = 8 * time.Minute

// Join runs kubeadm join on a node with a token that another makes.
func (c *Cluster) Join(ctx context.Context, n, with *Node) (string, error) {
	return c.JoinWithin(ctx, n, with, joinTimeout)
}

// JoinWithin is Join that waits for the agent's certificate as long as is said.
func (c *Cluster) JoinWithin(ctx context.Context, n, with *Node, within time.Duration) (string, error) {
	endpoint, token, hash, err := c.Token(ctx, with)
	if err != nil {
		return "", err
	}
	file := n.Instance.Path("home", "join.yaml")
	text := fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken:
    apiServerEndpoint: %s
    token: %s
    caCertHashes: [%q]
`, endpoint, token, hash) + strings.ReplaceAll(n.registration(), "tlsBootstrap: 8m0s", "tlsBootstrap: "+within.String())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	return n.Kubeadm(ctx, "join", "--config="+file, ignored)
}

// Connect does what a network add-on does: each node's pods get addresses of the
// node's part of the pods' network, and every node knows the way to the others'.
// It waits until each has been given its part.
func (c *Cluster) Connect(ctx context.Context, nodes ...*Node) error {
	parts := map[*Node]netip.Prefix{}
	for _, n := range nodes {
		part, err := c.podCIDR(ctx, n)
		if err != nil {
			return err
		}
		parts[n] = part
		if err := containerd.WriteNetwork(n.Instance, part.String(), part.Addr().Next().String()); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		for other, part := range parts {
			if other == n {
				continue
			}
			if err := n.Instance.Route(part.String(), other.Address); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) podCIDR(ctx context.Context, n *Node) (netip.Prefix, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		node, err := c.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err == nil && node.Spec.PodCIDR != "" {
			return netip.ParsePrefix(node.Spec.PodCIDR)
		}
		select {
		case <-ctx.Done():
			return netip.Prefix{}, fmt.Errorf("node %s was given no part of the pods' network: %w", n.Name, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// NotReady says why a node is not Ready; empty when it is.
func (c *Cluster) NotReady(ctx context.Context, n *Node) string {
	node, err := c.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return ""
		} else if condition.Type == corev1.NodeReady {
			return condition.Reason + ": " + condition.Message
		}
	}
	return "it has no condition Ready"
}
