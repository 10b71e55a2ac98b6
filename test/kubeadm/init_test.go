package kubeadm_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/test/harness/kubeadm"
)

// controlPlane are the static pods by the value of their label component.
var controlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// TestKubeadmMakesKeepsAndResetsANode goes through a control plane's life: each
// step is kubeadm's, and what it leads to is polylet's.
func TestKubeadmMakesKeepsAndResetsANode(t *testing.T) {
	s := build(t)
	n := s.add("plane")
	out, err := s.cluster.Init(s.ctx, n)
	s.must(err)
	s.assertInit(n, out)
	s.assertControlPlane(n)
	// It needs no network, and CoreDNS needs it.
	s.waitPods("k8s-app=kube-proxy", n.Name, 1)
	s.must(s.cluster.Connect(s.ctx, n))
	s.waitReady(n)
	s.waitPods("k8s-app=kube-dns", n.Name, 2)
	s.assertRenew(n)
	s.assertUpgrade(n)
	s.assertReset(n)
}

// assertInit reads what kubeadm said and wrote.
func (s *stage) assertInit(n *kubeadm.Node, out string) {
	s.Helper()
	// The second is said when the Node's certificate is one that is renewed.
	for _, want := range []string{"The kubelet is healthy after", "to point to a rotatable kubelet client certificate", "initialized successfully"} {
		if !strings.Contains(out, want) {
			s.Errorf("kubeadm init does not say %q:\n%s", want, out)
		}
	}
	for _, bad := range []string{"Service-Kubelet", "KubeletVersion", "Port-10250"} {
		if strings.Contains(out, bad) {
			s.Errorf("kubeadm init complains of the kubelet, %s:\n%s", bad, out)
		}
	}
	for file, want := range map[string]string{
		"config.yaml": "containerRuntimeEndpoint: " + n.Runtime.Endpoint(), "kubeadm-flags.env": "--node-ip=" + n.Address,
	} {
		if data, err := os.ReadFile(n.File("/var/lib/kubelet", file)); err != nil || !strings.Contains(string(data), want) {
			s.Errorf("%s lacks %q: %v\n%s", file, want, err, data)
		}
	}
	config, err := s.cluster.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(s.ctx, "kubelet-config", metav1.GetOptions{})
	if err != nil || !strings.Contains(config.Data["kubelet"], "cgroupDriver: cgroupfs") {
		s.Errorf("the ConfigMap kubelet-config: %v %v", err, config)
	}
}

// assertControlPlane waits for the static pods, and looks at the Node.
func (s *stage) assertControlPlane(n *kubeadm.Node) {
	s.Helper()
	for _, component := range controlPlane {
		p := s.waitPods("component="+component, n.Name, 1)[0]
		if p.Name != component+"-"+n.Name || p.Annotations["kubernetes.io/config.mirror"] == "" || !p.Spec.HostNetwork || p.Status.PodIP != n.Address {
			s.Errorf("%s is no mirror pod of a static pod on %s: %v, address %s", p.Name, n.Address, p.Annotations, p.Status.PodIP)
		}
	}
	node, err := s.cluster.Client.CoreV1().Nodes().Get(s.ctx, n.Name, metav1.GetOptions{})
	s.must(err)
	if _, ok := node.Labels["node-role.kubernetes.io/control-plane"]; !ok {
		s.Errorf("the Node's labels are %v", node.Labels)
	}
	if !strings.HasPrefix(node.Status.NodeInfo.KubeletVersion, "v1.36.") {
		s.Errorf("the Node's version is %q", node.Status.NodeInfo.KubeletVersion)
	}
	if pods := node.Status.Capacity.Pods().Value(); pods != kubeadm.PatchedPods {
		s.Errorf("the Node has room for %d pods; kubeadm's patch says %d", pods, kubeadm.PatchedPods)
	}
	// Without a network the Node says so, and nothing is scheduled on it.
	if why := s.cluster.NotReady(s.ctx, n); !strings.Contains(why, "NetworkPluginNotReady") && !strings.Contains(why, "network") {
		s.Errorf("before there is a network the Node is not Ready: %q", why)
	}
}

// assertRenew renews all certificates, and has the control plane take them the way
// kubeadm says: each manifest is moved away until its pod is gone, and back.
func (s *stage) assertRenew(n *kubeadm.Node) {
	s.Helper()
	file := n.File("/etc/kubernetes", "pki", "apiserver.crt")
	before := s.certificate(file)
	out, err := n.Kubeadm(s.ctx, "certs", "renew", "all")
	s.must(err)
	after := s.certificate(file)
	if before.SerialNumber.Cmp(after.SerialNumber) == 0 || !strings.Contains(out, "You must restart the kube-apiserver") {
		s.Fatalf("the apiserver's certificate is the same, serial %v:\n%s", after.SerialNumber, out)
	}
	manifests, err := filepath.Glob(n.File("/etc/kubernetes", "manifests", "*.yaml"))
	if err != nil || len(manifests) != len(controlPlane) {
		s.Fatalf("manifests %v, %v", manifests, err)
	}
	for _, m := range manifests {
		s.must(os.Rename(m, n.Instance.Path("home", filepath.Base(m))))
	}
	s.eventually(3*time.Minute, "the control plane's containers are gone", func() error {
		if left := s.running(n, controlPlane...); len(left) > 0 {
			return fmt.Errorf("%v still run", left)
		}
		return nil
	})
	for _, m := range manifests {
		s.must(os.Rename(n.Instance.Path("home", filepath.Base(m)), m))
	}
	s.eventually(4*time.Minute, "the apiserver serves the new certificate", func() error { return s.serves(n, after) })
	s.must(s.cluster.Readopt(n)) // the administrator's was renewed, too
	for _, component := range controlPlane {
		s.waitPods("component="+component, n.Name, 1)
	}
	s.waitReady(n)
}

// assertUpgrade has kubeadm write the node's configuration anew from the cluster's.
func (s *stage) assertUpgrade(n *kubeadm.Node) {
	s.Helper()
	config := s.cluster.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	shared, err := config.Get(s.ctx, "kubelet-config", metav1.GetOptions{})
	s.must(err)
	var fields map[string]any
	s.must(yaml.Unmarshal([]byte(shared.Data["kubelet"]), &fields))
	fields["maxPods"] = 77
	text, err := yaml.Marshal(fields)
	s.must(err)
	shared.Data["kubelet"] = string(text)
	_, err = config.Update(s.ctx, shared, metav1.UpdateOptions{})
	s.must(err)
	out, err := n.Kubeadm(s.ctx, "upgrade", "node", ignored)
	s.must(err)
	if data, err := os.ReadFile(n.File("/var/lib/kubelet", "config.yaml")); err != nil || !strings.Contains(string(data), "maxPods: 77") {
		s.Fatalf("config.yaml is not the cluster's: %v\n%s\n%s", err, data, out)
	}
	// kubeadm's guide: restart the kubelet.
	if out, err := n.Command(s.ctx, "systemctl", "restart", "kubelet").CombinedOutput(); err != nil {
		s.Fatalf("systemctl restart kubelet: %v %s", err, out)
	}
	s.eventually(2*time.Minute, "the Node has the new configuration", func() error {
		node, err := s.cluster.Client.CoreV1().Nodes().Get(s.ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pods := node.Status.Capacity.Pods().Value(); pods != 77 {
			return fmt.Errorf("it has room for %d pods", pods)
		}
		return nil
	})
	s.waitReady(n)
}

const ignored = "--ignore-preflight-errors=SystemVerification"

// assertReset has kubeadm undo everything, and nothing is left of it.
func (s *stage) assertReset(n *kubeadm.Node) {
	s.Helper()
	out, err := n.Kubeadm(s.ctx, "reset", "--force", "--cri-socket="+n.Runtime.Endpoint())
	s.must(err)
	if strings.Contains(out, "The kubelet service could not be stopped") || n.Kubelet.Wanted() {
		s.Errorf("the kubelet still runs:\n%s", out)
	}
	if left := s.running(n); len(left) > 0 {
		s.Errorf("containers still run: %v\n%s", left, out)
	}
	for _, dir := range []string{"/etc/kubernetes/manifests", "/var/lib/kubelet", "/var/lib/etcd"} {
		listing, err := n.Space.Run(s.ctx, "find", dir, "-mindepth", "1")
		if err == nil && listing != "" {
			s.Errorf("%s has something left:\n%s", dir, listing)
		}
	}
	mounts, err := n.Space.Run(s.ctx, "cat", "/proc/self/mounts")
	s.must(err)
	if strings.Contains(mounts, " /var/lib/kubelet/") {
		s.Errorf("mounts are left:\n%s", mounts)
	}
}

// running are the names of the containers that run on a node; of those names only
// when any are given.
func (s *stage) running(n *kubeadm.Node, names ...string) []string {
	s.Helper()
	found, err := n.Running(s.ctx, names...)
	s.must(err)
	return found
}

func (s *stage) certificate(file string) *x509.Certificate {
	s.Helper()
	data, err := os.ReadFile(file)
	s.must(err)
	return s.parse(data)
}

func (s *stage) parse(data []byte) *x509.Certificate {
	s.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		s.Fatalf("no certificate in %d bytes", len(data))
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	s.must(err)
	return cert
}

// serves asks the apiserver which certificate it has.
func (s *stage) serves(n *kubeadm.Node, want *x509.Certificate) error {
	got, err := n.Serving(s.ctx, "6443")
	if err != nil {
		return err
	}
	if !got.Equal(want) {
		return errors.New("it serves the old one")
	}
	return nil
}
