package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// What keeps a node from joining, and later from renewing its certificate, is named with
// what to do about it, ends no process and no pod, and is over as soon as it is mended.
func TestWhatKeepsANodeFromItsCertificateIsNamedAndStopsNothing(t *testing.T) {
	if onKubelet() {
		t.Skip("of polylet's words")
	}
	pki := ""
	h := build(t, plan{
		controllers: true, supervised: true, bootstrap: true, noNode: true, overrides: map[string]any{"rotateCertificates": true},
		prepare: func(h *house) { pki = h.smallDisk("pki") },
	})
	good, err := os.ReadFile(h.bootstrap)
	h.must(err)
	expired, err := h.cluster.BootstrapKubeconfig(h.ctx, "expire", -time.Hour)
	h.must(err)
	h.must(os.Rename(expired, h.bootstrap))
	h.must(h.node.AddStaticPod("early.yaml", staticManifest("early", "http", "port=8080")))
	h.must(h.node.Start(h.ctx))
	h.statusSays("a token that has expired", "the bootstrap kubeconfig "+h.bootstrap+" is refused (Unauthorized)", "kubeadm token create")

	other, err := clientcmd.Load(good)
	h.must(err)
	other.Clusters["kubernetes"].CertificateAuthorityData, err = os.ReadFile(h.inst.Path("cluster", "front-proxy-ca.crt"))
	h.must(err)
	h.must(clientcmd.WriteToFile(*other, h.bootstrap))
	h.statusSays("another authority", "the bootstrap kubeconfig "+h.bootstrap, "certificate signed by unknown authority", "correct its certificate-authority-data")

	h.must(os.WriteFile(h.bootstrap, good, 0o600))
	const clients = certificatesv1.KubeAPIServerClientKubeletSignerName
	h.eventually(2*time.Minute, "a request is made", func() error {
		return boolError(len(h.requested(clients)) == 1, "%d requests", len(h.requested(clients)))
	})
	h.kubectlOK("certificate", "deny", h.requested(clients)[0].Name)
	h.statusSays("a denied request", "certificate signing request "+h.requested(clients)[0].Name+" was denied")
	h.eventually(time.Minute, "the static pod runs", func() error {
		pods, err := h.nodePods()
		if err != nil || len(pods.Items) == 0 || len(pods.Items[0].Status.ContainerStatuses) == 0 {
			return fmt.Errorf("%v, %v", pods, err)
		}
		return boolError(pods.Items[0].Status.ContainerStatuses[0].State.Running != nil, "%s", describe(&pods.Items[0]))
	})
	h.must(h.cluster.ApproveNodes(h.ctx))
	h.eventually(3*time.Minute, "the next request is approved", func() error {
		_, err := os.Stat(filepath.Join(pki, "kubelet-client-current.pem"))
		return err
	})
	h.waitNodeReady()
	early := h.waitReady("early-"+nodeName, time.Minute)
	h.eventually(time.Minute, "the Node's events tell of it", func() error {
		n := h.nodeEvents("CertificateRequestDenied") + h.nodeEvents("CertificateNotRequested")
		return boolError(n >= 2, "%d events", n)
	})

	// A damaged certificate on a full disk.
	before := h.pids()
	if err := os.WriteFile(filepath.Join(pki, "kubelet-client-filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	target, err := filepath.EvalSymlinks(filepath.Join(pki, "kubelet-client-current.pem"))
	h.must(err)
	h.must(os.Truncate(target, 0))
	h.killService("nodestatus")
	h.statusSays("a damaged certificate on a full disk", "no space left on device", "free space on the file system of "+pki)
	h.create(webApp("meanwhile"))
	h.waitReady("meanwhile", time.Minute) // podsync has what it had
	h.must(os.Remove(filepath.Join(pki, "kubelet-client-filler")))
	h.eventually(time.Minute, "there is another certificate", func() error {
		_, err := os.Stat(filepath.Join(pki, "kubelet-client-current.pem"))
		return err
	})
	h.statusSays("nothing", "")
	if aside, _ := filepath.Glob(target + ".damaged-*"); len(aside) != 1 {
		t.Errorf("set aside: %v", aside)
	}
	for name, pid := range h.pids() {
		if name != "nodestatus" && before[name] != pid {
			t.Errorf("%s was restarted", name)
		}
	}

	// A kubeconfig that points at files that are gone, and nothing to begin anew with.
	h.node.Stop()
	h.must(os.Remove(h.bootstrap))
	current := filepath.Join(pki, "kubelet-client-current.pem")
	h.must(os.Rename(current, current+".away"))
	h.must(h.node.Start(h.ctx))
	h.statusSays("files that are gone", "kubeconfig "+h.node.Kubeconfig+" names a client certificate that cannot be read", current, "kubeadm join")
	h.must(os.Rename(current+".away", current))
	h.statusSays("nothing", "")
	h.answersFromNow("polylet")
	h.wantSame(early, h.waitReady("early-"+nodeName, time.Minute))
}

// smallDisk makes a directory of the instance a file system that a megabyte fills.
func (h *house) smallDisk(name string) string {
	h.Helper()
	dir, err := h.inst.Mkdir(name)
	h.must(err)
	h.must(unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0755"))
	h.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			h.Error(err)
		}
	})
	return dir
}

// statusSays waits until polylet status says all of it, or that nothing is missing of the
// node's identity.
func (h *house) statusSays(what string, want ...string) {
	h.Helper()
	h.eventually(2*time.Minute, "polylet status tells of "+what, func() error {
		out, _ := h.polylet("status")
		for _, text := range want {
			if !strings.Contains(out, text) {
				return fmt.Errorf("it does not say %q:\n%s", text, out)
			}
		}
		if want[0] == "" && (strings.Contains(out, "CSR") || strings.Contains(out, "credential") || strings.Contains(out, "certificate")) {
			return errors.New(out)
		}
		return nil
	})
}
