package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/node"
)

// requested are the certificate signing requests of the node for a signer.
func (h *house) requested(signer string) []certificatesv1.CertificateSigningRequest {
	list, err := h.cluster.Client.CertificatesV1().CertificateSigningRequests().List(h.ctx, metav1.ListOptions{FieldSelector: "spec.signerName=" + signer})
	if err != nil {
		h.Log(err)
		return nil
	}
	return list.Items
}

// pids are those of the five.
func (h *house) pids() map[string]int {
	h.Helper()
	out := map[string]int{}
	for _, name := range node.Services() {
		pid, err := childOf(h.node.Processes["run"].Pid(), name)
		h.must(err)
		out[name] = pid
	}
	return out
}

// A node whose certificate a person approves: its static pods run meanwhile, it says what
// it waits for, and goes on when it has it, without a restart of anything. Then a kubelet
// takes its place, and gives it back.
func TestANodeJoinsByItselfWhenItsRequestIsApproved(t *testing.T) {
	h := build(t, plan{controllers: true, supervised: true, bootstrap: true, noNode: true, overrides: map[string]any{"rotateCertificates": true}})
	h.must(h.node.AddStaticPod("early.yaml", staticManifest("early", "http", "port=8080")))
	h.must(h.node.Start(h.ctx))
	h.eventually(time.Minute, "the static pod runs", func() error {
		pods, err := h.nodePods()
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Name == "early-"+nodeName && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running != nil {
				return nil
			}
		}
		return errors.New("it is not there")
	})
	const clients = certificatesv1.KubeAPIServerClientKubeletSignerName
	h.eventually(time.Minute, "the node has asked", func() error {
		requests := h.requested(clients)
		return boolError(len(requests) == 1, "%d requests", len(requests))
	})
	var before map[string]int
	if !onKubelet() {
		before = h.waitsForApproval(h.requested(clients)[0].Name)
	}
	if requests := h.requested(clients); len(requests) != 1 {
		t.Fatalf("%d requests", len(requests))
	}
	// kubeadm join gives up after minutes, and takes the token away.
	h.must(os.Remove(h.bootstrap))
	h.kubectlOK("certificate", "approve", h.requested(clients)[0].Name)
	h.waitNodeReady()
	h.waitReady("early-"+nodeName, time.Minute)
	h.create(webApp("first"))
	p := h.waitReady("first", time.Minute)
	if onKubelet() {
		return // the rest is of polylet's processes and files, and of changing places with a kubelet
	}
	for name, pid := range h.pids() {
		if before[name] != pid {
			t.Errorf("%s was restarted", name)
		}
	}
	if out, _ := h.polylet("status"); strings.Contains(out, "CSR") || strings.Contains(out, "credential") {
		t.Errorf("polylet status still says\n%s", out)
	}
	h.wantCertificateFiles()

	// There and back again. The bootstrap token is good no more.
	h.must(h.cluster.Client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(h.ctx, "bootstrap-token-abcdef", metav1.DeleteOptions{}))
	h.node.Stop()
	h.prepareNode(plan{kubelet: true, overrides: map[string]any{"rotateCertificates": true}})
	h.must(h.node.Start(h.ctx))
	h.answersFromNow("the kubelet")
	h.node.Stop()
	h.prepareNode(plan{supervised: true, overrides: map[string]any{"rotateCertificates": true}})
	h.must(h.node.Start(h.ctx))
	h.answersFromNow("polylet")
	h.wantSame(p, h.waitReady("first", time.Minute))
}

// waitsForApproval has polylet status name the request that it waits for. It kills
// nodestatus, which does not ask again for that, and returns the five afterwards. The
// kubeconfig is there before the certificate, as a kubelet's is: it says where the
// apiserver is when the token has been taken away.
func (h *house) waitsForApproval(request string) map[string]int {
	h.Helper()
	h.eventually(time.Minute, "the node says what it waits for", func() error {
		out, _ := h.polylet("status")
		want := "waits for the approval of CSR " + request + ", since "
		return boolError(strings.Contains(out, want) && strings.Contains(out, "kubectl certificate approve "+request), "polylet status says\n%s", out)
	})
	before := h.pids()
	h.killService("nodestatus")
	h.quietly(time.Minute, "nodestatus is back", func() error {
		pid, err := childOf(h.node.Processes["run"].Pid(), "nodestatus")
		return boolError(err == nil && pid != before["nodestatus"], "pid %d, %v", pid, err)
	})
	config, err := os.ReadFile(h.node.Kubeconfig)
	if err != nil || !strings.Contains(string(config), "kubelet-client-current.pem") || strings.Contains(string(config), "token") {
		h.Errorf("the kubeconfig is %s, %v", config, err)
	}
	h.eventually(time.Minute, "nodestatus has found the request again", func() error {
		out, _ := h.polylet("status")
		return boolError(strings.Contains(out, "waits for the approval of CSR "+request), "polylet status says\n%s", out)
	})
	return h.pids()
}

// kubectlOK is kubectl that has to succeed.
func (h *house) kubectlOK(args ...string) {
	h.Helper()
	_, err := h.kubectl(args...)
	h.must(err)
}

// answersFromNow waits until the agent has renewed the node's lease.
func (h *house) answersFromNow(agent string) {
	h.Helper()
	start := time.Now()
	h.eventually(time.Minute, agent+" renews the lease", func() error {
		lease, err := h.cluster.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(h.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return boolError(lease.Spec.RenewTime.After(start), "last at %v", lease.Spec.RenewTime)
	})
}

// wantCertificateFiles looks who may read the node's certificate and kubeconfig.
func (h *house) wantCertificateFiles() {
	h.Helper()
	dir := h.inst.Path("pki")
	current := filepath.Join(dir, "kubelet-client-current.pem")
	config, err := os.ReadFile(h.node.Kubeconfig)
	h.must(err)
	if !strings.Contains(string(config), "client-certificate: "+current) || !strings.Contains(string(config), "current-context: default-context") {
		h.Errorf("the kubeconfig is\n%s", config)
	}
	nodestatus := statusOf(h, "nodestatus")
	for file, want := range map[string]struct {
		mode os.FileMode
		uid  uint32
	}{dir: {os.ModeDir | 0o755, nodestatus}, current: {0o600, nodestatus}, h.node.Kubeconfig: {0o600, 0}} {
		info, err := os.Stat(file)
		h.must(err)
		if owner := info.Sys().(*syscall.Stat_t).Uid; info.Mode() != want.mode || owner != want.uid {
			h.Errorf("%s is %v of user %d; want %v of %d", file, info.Mode(), owner, want.mode, want.uid)
		}
	}
	if nodestatus == 0 {
		h.Error("nodestatus is root")
	}
}

// statusOf is the user that a service runs as.
func statusOf(h *house, service string) uint32 {
	h.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d", h.pids()[service]))
	h.must(err)
	return info.Sys().(*syscall.Stat_t).Uid
}
