package kubeadm_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/kubeadm"
)

// TestKubeadmJoinsANodeByATokenAndItsPodsAreReached goes through a worker's life.
func TestKubeadmJoinsANodeByATokenAndItsPodsAreReached(t *testing.T) {
	s := build(t)
	plane, worker := s.add("plane"), s.add("worker")
	_, err := s.cluster.Init(s.ctx, plane)
	s.must(err)
	s.assertGivesUp(worker, plane)
	out, err := s.cluster.Join(s.ctx, worker, plane)
	s.must(err)
	s.assertJoin(worker, out)
	// It needs no network, and CoreDNS needs it.
	s.waitPods("k8s-app=kube-proxy", plane.Name, 1)
	s.waitPods("k8s-app=kube-proxy", worker.Name, 1)
	s.must(s.cluster.Connect(s.ctx, plane, worker))
	s.waitReady(plane)
	s.waitReady(worker)
	s.waitPods("k8s-app=kube-dns", "", 2)
	s.assertReached(plane, worker)
	out, err = worker.Kubeadm(s.ctx, "upgrade", "node", ignored)
	s.must(err)
	if !strings.Contains(out, "The kubelet configuration for this node was successfully upgraded") {
		t.Errorf("kubeadm upgrade node says:\n%s", out)
	}
	s.assertReset(worker)
}

// assertGivesUp has kubeadm join give up, since nobody approves what the agent asks for: it
// takes the token away. Whoever approves later finds that the node joins all the same. Then
// all is undone.
func (s *stage) assertGivesUp(n, plane *kubeadm.Node) {
	s.Helper()
	const approver = "kubeadm:node-autoapprove-bootstrap"
	bindings := s.cluster.Client.RbacV1().ClusterRoleBindings()
	binding, err := bindings.Get(s.ctx, approver, metav1.GetOptions{})
	s.must(err)
	s.must(bindings.Delete(s.ctx, approver, metav1.DeleteOptions{}))
	out, err := s.cluster.JoinWithin(s.ctx, n, plane, 15*time.Second)
	if err == nil || !strings.Contains(out, "Waiting for the kubelet to perform the TLS Bootstrap") {
		s.Fatalf("kubeadm join joins a node that nobody has approved: %v\n%s", err, out)
	}
	if _, err := os.Stat(n.File("/etc/kubernetes", "bootstrap-kubelet.conf")); !errors.Is(err, fs.ErrNotExist) {
		s.Errorf("kubeadm leaves the token: %v", err)
	}
	s.eventually(2*time.Minute, "the node's request is approved", func() error {
		requests, err := s.cluster.Client.CertificatesV1().CertificateSigningRequests().List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, r := range requests.Items {
			if len(r.Status.Conditions) == 0 && strings.HasPrefix(r.Spec.Username, "system:bootstrap:") {
				out, err := plane.Command(s.ctx, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "certificate", "approve", r.Name).CombinedOutput()
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			}
		}
		return fmt.Errorf("none of %d waits", len(requests.Items))
	})
	nodes := s.cluster.Client.CoreV1().Nodes()
	s.eventually(2*time.Minute, "the node has joined though kubeadm gave up", func() error {
		_, err := nodes.Get(s.ctx, n.Name, metav1.GetOptions{})
		return err
	})
	s.assertReset(n)
	s.must(nodes.Delete(s.ctx, n.Name, metav1.DeleteOptions{}))
	binding.ObjectMeta = metav1.ObjectMeta{Name: binding.Name}
	_, err = bindings.Create(s.ctx, binding, metav1.CreateOptions{})
	s.must(err)
}

// assertJoin reads what kubeadm said, and what the agent wrote: the credentials of
// the Node's own, and nothing of the token.
func (s *stage) assertJoin(n *kubeadm.Node, out string) {
	s.Helper()
	if !strings.Contains(out, "This node has joined the cluster") {
		s.Errorf("kubeadm join says:\n%s", out)
	}
	for _, bad := range []string{"Service-Kubelet", "KubeletVersion", "Port-10250"} {
		if strings.Contains(out, bad) {
			s.Errorf("kubeadm join complains of the kubelet, %s:\n%s", bad, out)
		}
	}
	kubeconfig, err := os.ReadFile(n.File("/etc/kubernetes", "kubelet.conf"))
	if err != nil || !strings.Contains(string(kubeconfig), "/var/lib/kubelet/pki/kubelet-client-current.pem") || strings.Contains(string(kubeconfig), "token:") {
		s.Errorf("kubelet.conf: %v\n%s", err, kubeconfig)
	}
	if _, err := os.Stat(n.File("/etc/kubernetes", "bootstrap-kubelet.conf")); err == nil {
		s.Errorf("the token stays on the node")
	}
	// A link that leads somewhere on the node only.
	pair, err := n.Space.Run(s.ctx, "cat", "/var/lib/kubelet/pki/kubelet-client-current.pem")
	s.must(err)
	cert := s.parse([]byte(pair))
	if cert.Subject.CommonName != "system:node:"+n.Name || len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != "system:nodes" {
		s.Errorf("the certificate is of %s", cert.Subject)
	}
}

// assertReached has a pod on each node ask one on the other, and a service by its
// name.
func (s *stage) assertReached(nodes ...*kubeadm.Node) {
	s.Helper()
	core := s.cluster.Client.CoreV1()
	addresses := map[string]string{}
	for _, n := range nodes {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "on-" + n.Name, Labels: map[string]string{"app": "reached"}}, Spec: corev1.PodSpec{
			NodeName: n.Name, TerminationGracePeriodSeconds: new(int64),
			Containers:  []corev1.Container{{Name: "app", Image: images.TestApp, Args: []string{"http", "port=8080"}}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		}}
		_, err := core.Pods(metav1.NamespaceDefault).Create(s.ctx, p, metav1.CreateOptions{})
		s.must(err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "reached"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "reached"}, Ports: []corev1.ServicePort{{Port: 8080}},
	}}
	_, err := core.Services(metav1.NamespaceDefault).Create(s.ctx, service, metav1.CreateOptions{})
	s.must(err)
	for _, n := range nodes {
		s.eventually(2*time.Minute, "the pod on "+n.Name+" is Ready", func() error {
			p, err := core.Pods(metav1.NamespaceDefault).Get(s.ctx, "on-"+n.Name, metav1.GetOptions{})
			if err != nil || !isReady(p) {
				return fmt.Errorf("%v: %s", err, describe([]corev1.Pod{*p}))
			}
			addresses[n.Name] = p.Status.PodIP
			return nil
		})
	}
	for i, from := range nodes {
		to := nodes[(i+1)%len(nodes)]
		for _, url := range []string{"http://" + addresses[to.Name] + ":8080/hostname", "http://reached.default.svc.cluster.local:8080/hostname"} {
			s.eventually(time.Minute, "on-"+from.Name+" reads "+url, func() error {
				out, err := nodes[0].Command(s.ctx, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "exec", "on-"+from.Name, "--", "/testapp", "get", "url="+url).CombinedOutput()
				if err != nil || !strings.HasPrefix(string(out), "on-") {
					return fmt.Errorf("%v: %s", err, out)
				}
				return nil
			})
		}
	}
}
