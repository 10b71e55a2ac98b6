package node_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/polylet/polylet/internal/nodecert"
)

// A node that has joined has no token any more. What is damaged of its certificates is
// mended from what was read before, and what is not its own is named with what to do;
// processes and pods go on.
func TestAJoinedNodeKeepsItsIdentityWhateverBecomesOfItsFiles(t *testing.T) {
	if onKubelet() {
		t.Skip("of polylet's words")
	}
	rotating := map[string]any{"rotateCertificates": true, "serverTLSBootstrap": true}
	h := build(t, plan{controllers: true, supervised: true, bootstrap: true, noNode: true, overrides: rotating})
	h.must(h.cluster.ApproveNodes(h.ctx))
	h.approveServing()
	h.must(h.node.Start(h.ctx))
	h.waitNodeReady()
	h.create(webApp("bystander"))
	bystander := h.waitReady("bystander", time.Minute)
	h.eventually(time.Minute, "the apiserver trusts the node", func() error { return h.readsLog("bystander") })
	token, err := os.ReadFile(h.bootstrap)
	h.must(err)
	h.must(os.Remove(h.bootstrap))
	before := h.pids()

	client := nodecert.Store{Dir: h.inst.Path("pki"), Prefix: nodecert.Client}
	serving := nodecert.Store{Dir: client.Dir, Prefix: nodecert.Serving}
	for what, damage := range damages {
		for _, store := range []nodecert.Store{client, serving} {
			h.damage(what, store, damage)
		}
	}
	if h.nodeEvents("CertificateDamaged") < int32(len(damages)) {
		t.Errorf("%d events tell of damage", h.nodeEvents("CertificateDamaged"))
	}
	h.wantPIDs(before)
	h.killService("nodestatus")
	h.killService("podsync")
	h.create(webApp("later"))
	h.waitReady("later", time.Minute)
	h.statusSays("nothing", "")

	// Another node's certificate.
	h.must(client.Write(h.signed("system:node:other-node", time.Now().Add(time.Hour)), time.Now()))
	h.statusSays("another node's certificate", `it is for "system:node:other-node" and this node is "system:node:`+nodeName+`" (--hostname-override, or the hostname)`, "may not ask for a certificate", "a node may ask for its own only")
	h.joinAgain(token)

	// An apiserver that the kubeconfig's authority has not signed for.
	good, err := os.ReadFile(h.node.Kubeconfig)
	h.must(err)
	other, err := clientcmd.Load(good)
	h.must(err)
	for _, c := range other.Clusters {
		c.CertificateAuthority, c.CertificateAuthorityData = h.inst.Path("cluster", "front-proxy-ca.crt"), nil
	}
	h.must(clientcmd.WriteToFile(*other, h.node.Kubeconfig))
	h.statusSays("an unknown authority", "correct certificate-authority-data of the kubeconfig "+h.node.Kubeconfig)
	h.must(os.WriteFile(h.node.Kubeconfig, good, 0o600))
	h.answersFromNow("polylet")
	h.statusSays("nothing", "")

	// The node was off for longer than its certificate was good.
	h.node.Stop()
	h.must(client.Write(h.signed("system:node:"+nodeName, time.Now().Add(-time.Hour)), time.Now()))
	h.must(h.node.Start(h.ctx))
	h.statusSays("a certificate that has ended", "the client certificate of the kubeconfig ended at", "kubeadm join")
	h.joinAgain(token)

	// Another name, and nobody to ask for its certificate.
	h.node.Stop()
	h.prepareNode(plan{supervised: true, overrides: map[string]any{"rotateCertificates": false}, flags: []string{"--hostname-override=elsewhere"}})
	h.must(h.node.Start(h.ctx))
	h.statusSays("another name", `it is for "system:node:`+nodeName+`" and this node is "system:node:elsewhere"`, "correct the name")
	h.node.Stop()
	h.prepareNode(plan{supervised: true, overrides: rotating})
	h.must(h.node.Start(h.ctx))
	h.answersFromNow("polylet")
	h.wantSame(bystander, h.waitReady("bystander", time.Minute))

	// A second agent says so, and takes nothing from the first.
	before = h.pids()
	out, err := h.run(append([]string{"run"}, h.node.Flags()...))
	if err == nil || !strings.Contains(out, h.inst.Path()) {
		t.Errorf("a second agent: %v\n%s", err, out)
	}
	h.wantPIDs(before)
	h.statusSays("nothing", "")
}

// damages are what may become of a certificate, of which the store's link, the file that
// it leads to and another node's certificate are given.
var damages = map[string]func(link, file string, other *nodecert.Pair) error{
	"empty":     func(_, file string, _ *nodecert.Pair) error { return os.Truncate(file, 0) },
	"cut short": func(_, file string, _ *nodecert.Pair) error { return os.Truncate(file, 500) },
	"another key": func(_, file string, other *nodecert.Pair) error {
		pair, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		cert, _, _ := strings.Cut(string(pair), "-----BEGIN EC")
		return os.WriteFile(file, append([]byte(cert), other.Key...), 0o600)
	},
	"a directory": func(_, file string, _ *nodecert.Pair) error {
		if err := os.Remove(file); err != nil {
			return err
		}
		return os.Mkdir(file, 0o700)
	},
	"a circle": func(link, _ string, _ *nodecert.Pair) error {
		if err := os.Remove(link); err != nil {
			return err
		}
		return os.Symlink(link, link)
	},
}

// damage damages a certificate and waits until it is what it was.
func (h *house) damage(what string, store nodecert.Store, damage func(link, file string, other *nodecert.Pair) error) {
	h.Helper()
	want, err := store.Read()
	h.must(err)
	file, err := os.Readlink(store.CurrentPath())
	h.must(err)
	h.must(damage(store.CurrentPath(), file, h.signed("system:node:other-node", time.Now().Add(time.Hour))))
	if _, err := store.Read(); err == nil {
		h.Fatalf("%s: %s is not damaged", what, file)
	}
	h.eventually(time.Minute, store.Prefix+" is mended: "+what, func() error {
		got, err := store.Read()
		if err != nil {
			return err
		}
		return boolError(got.Leaf.Equal(want.Leaf), "it is another one")
	})
}

// joinAgain does what kubeadm join does, and waits until the node is back.
func (h *house) joinAgain(token []byte) {
	h.Helper()
	h.must(os.WriteFile(h.bootstrap, token, 0o600))
	h.answersFromNow("polylet")
	h.statusSays("nothing", "")
	h.must(os.Remove(h.bootstrap))
}

func (h *house) wantPIDs(before map[string]int) {
	h.Helper()
	for name, pid := range h.pids() {
		if before[name] != pid {
			h.Errorf("%s was restarted", name)
		}
	}
}

// signed is a client certificate of the cluster's authority.
func (h *house) signed(name string, end time.Time) *nodecert.Pair {
	h.Helper()
	file := h.cluster.ClientCAFile()
	ca, err := tls.LoadX509KeyPair(file, strings.TrimSuffix(file, ".crt")+".key")
	h.must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	h.must(err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, Organization: []string{"system:nodes"}},
		NotBefore: end.Add(-24 * time.Hour), NotAfter: end, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.Leaf, key.Public(), ca.PrivateKey)
	h.must(err)
	raw, err := x509.MarshalECPrivateKey(key)
	h.must(err)
	pair, err := nodecert.Parse(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
	if err != nil {
		h.Fatal(fmt.Errorf("sign for %s: %w", name, err))
	}
	return pair
}
