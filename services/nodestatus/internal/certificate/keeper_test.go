package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

func TestAFirstCertificateIsAskedForAndWaitedForByName(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.approve(false)
		w.start()
		time.Sleep(quiet + time.Second)
		requests := w.requests()
		if len(requests) != 1 {
			t.Fatalf("%d requests", len(requests))
		}
		r := requests[0]
		w.wantWaits("client CSR: waits for the approval of CSR "+r.Name+", since "+r.CreationTimestamp.UTC().Format(time.RFC3339), "kubectl certificate approve "+r.Name)
		if r.Spec.SignerName != "kubernetes.io/kube-apiserver-client-kubelet" || !slices.Equal(r.Spec.Usages, []certificatesv1.KeyUsage{"digital signature", "client auth"}) {
			t.Errorf("asked for %+v", r.Spec)
		}
		time.Sleep(20 * time.Hour)
		if got := w.requests(); len(got) != 1 {
			t.Errorf("%d requests after a day", len(got))
		}
		w.answer(certificatesv1.CertificateApproved)
		if leaf := w.now(); leaf == nil || leaf.Subject.CommonName != "system:node:n1" || leaf.Subject.Organization[0] != "system:nodes" {
			t.Errorf("got %v", leaf)
		}
		if got := w.waits(); got != "" || w.written != 1 || !slices.Equal(w.seen(), []string{"CertificateRequestPending"}) {
			t.Errorf("still waits for %q, %d written, events %v", got, w.written, w.seen())
		}
	})
}

// Somebody may take days to approve it, and apiservers forget the versions of then.
func TestARequestThatWaitsForLongIsWatchedAndNotAskedForAllTheTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.approve(false)
		w.start()
		time.Sleep(time.Hour)
		w.api.Compact()
		time.Sleep(time.Hour)
		before := w.api.Calls()
		time.Sleep(time.Hour)
		calls := 0
		for name, n := range w.api.Calls() {
			if strings.HasSuffix(name, "certificatesigningrequests") {
				calls += n - before[name]
			}
		}
		if calls > 60 {
			t.Errorf("%d calls in an hour", calls)
		}
		w.answer(certificatesv1.CertificateApproved)
		if w.now() == nil {
			t.Error("the certificate is not taken")
		}
	})
}

func TestARequestThatIsApprovedAfterAKillIsNotMadeAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.approve(false)
		for range 5 {
			w.start()
			time.Sleep(10 * time.Second)
			w.stop()
		}
		if got := w.requests(); len(got) != 1 {
			t.Fatalf("%d requests after five starts", len(got))
		}
		w.answer(certificatesv1.CertificateApproved) // while nobody waits
		w.start()
		if w.now() == nil {
			t.Error("the certificate is not taken")
		}
	})
}

// The key of a request that was answered is of no more use, whenever the process was
// killed: with it the next request would be the last one.
func TestAKeyIsUsedForOneCertificate(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.signer.life = time.Hour
		_, keyPEM, err := w.store.PendingKey()
		if err != nil {
			t.Fatal(err)
		}
		w.start()
		first := w.now()
		w.stop()
		// Killed before it could be removed.
		if err := os.WriteFile(filepath.Join(w.store.Dir, "kubelet-client.key.tmp"), keyPEM, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute)
		w.start()
		time.Sleep(time.Minute)
		if now := w.now(); now == nil || now.Equal(first) || now.PublicKey.(*ecdsa.PublicKey).Equal(first.PublicKey) {
			t.Errorf("the certificate of now is the first one's, or has its key")
		}
	})
}

func TestWhatTheKubeconfigCameWithIsTakenOverAndReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		first := newSigner(t, time.Hour)
		_, keyPEM, err := w.store.PendingKey()
		if err != nil {
			t.Fatal(err)
		}
		key, _, _ := w.store.PendingKey()
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(7), Subject: Subject("n1"), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}, first.ca, key.Public(), first.key)
		if err != nil {
			t.Fatal(err)
		}
		kubeadms, err := nodecert.Parse(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		w.set(func() {
			w.fault = func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Drop: true} }
		}) // the control plane is not up yet
		w.borrowed = true
		w.keeper = New(ClientConfig(w.store.Dir, true), Deps{
			Want:    func() (*x509.CertificateRequest, string) { return w.want, "" },
			Current: func() (*nodecert.Pair, bool) { return w.pick(kubeadms) },
			Clients: func(*nodecert.Pair) []Client { return w.clients(w) }, Written: func(context.Context) {},
			Send: func(context.Context, node.Event) {}, Health: w.health,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = w.keeper.Run(ctx) }()
		time.Sleep(time.Second)
		if leaf := w.now(); leaf == nil || !leaf.Equal(kubeadms.Leaf) {
			t.Error("kubeadm's certificate is not in the store")
		}
		w.set(func() { w.fault = nil })
		time.Sleep(time.Minute)
		if leaf := w.now(); leaf.Equal(kubeadms.Leaf) || w.count() != 1 {
			t.Errorf("kubeadm's certificate stays, %d issued", w.count())
		}
		cancel()
		<-done
	})
}

// pick is the stored certificate where there is one, as the credential chooses.
func (w *world) pick(kubeadms *nodecert.Pair) (*nodecert.Pair, bool) {
	pair, err := w.store.Read()
	if err != nil {
		return kubeadms, true
	}
	return pair, pair.Leaf.Equal(kubeadms.Leaf)
}

func TestWithoutRotationACertificateIsReplacedWhenItHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rotate, w.signer.life = false, 24*time.Hour
		w.start()
		first := w.now()
		time.Sleep(23*time.Hour + 59*time.Minute)
		if !w.now().Equal(first) {
			t.Error("it was renewed before its end")
		}
		time.Sleep(2 * time.Minute)
		if w.now().Equal(first) {
			t.Error("it was not replaced")
		}
	})
}

func TestNewAddressesAreANewServingCertificate(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.store.Prefix, w.want = nodecert.Serving, nil
		w.start()
		time.Sleep(time.Second)
		w.wantWaits("serving CSR: it is not known for what")
		address := func(ip string) *x509.CertificateRequest {
			r, _ := ServingRequest("n1", []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: ip}, {Type: v1.NodeHostName, Address: "n1"}}, false)
			return r
		}
		w.set(func() { w.want = address("10.0.0.1") })
		w.keeper.Changed()
		if leaf := w.now(); leaf == nil || leaf.IPAddresses[0].String() != "10.0.0.1" || leaf.DNSNames[0] != "n1" {
			t.Fatalf("%v, waits for %q", leaf, w.waits())
		}
		time.Sleep(time.Hour)
		w.approve(false)
		w.set(func() { w.want = address("10.0.0.2") })
		w.keeper.Changed()
		time.Sleep(time.Minute)
		w.set(func() { w.want = address("10.0.0.3") }) // while nobody approves
		w.keeper.Changed()
		time.Sleep(time.Minute)
		if leaf := w.now(); leaf.IPAddresses[0].String() != "10.0.0.1" {
			t.Errorf("the old one went before a new one came: %v", leaf.IPAddresses)
		}
		var asked []string
		for _, r := range w.requests() {
			block, _ := pem.Decode(r.Spec.Request)
			request, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil || r.Spec.SignerName != "kubernetes.io/kubelet-serving" || !slices.Contains(r.Spec.Usages, "server auth") {
				t.Fatalf("%v, %+v", err, r.Spec)
			}
			asked = append(asked, request.IPAddresses[0].String())
		}
		slices.Sort(asked)
		if !slices.Equal(asked, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}) {
			t.Errorf("asked for %v", asked)
		}
		w.set(func() { w.want = address("10.0.0.1") }) // it has come back
		w.keeper.Changed()
		time.Sleep(20 * time.Second)
		if got := w.waits(); got != "" || len(w.lived) != 0 {
			t.Errorf("waits for %q", got)
		}
	})
}
