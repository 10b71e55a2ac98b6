package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// signer is kube-controller-manager's signer with an approver before it.
type signer struct {
	key      *ecdsa.PrivateKey
	ca       *x509.Certificate
	mu       sync.Mutex
	life     time.Duration
	issued   int
	approves bool
	// change changes what is issued; nil changes nothing.
	change func(*x509.Certificate)
}

func newSigner(t *testing.T, life time.Duration) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(100 * 365 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{key: key, ca: ca, life: life, approves: true}
}

// sign answers a request with a certificate that is backdated by five minutes.
func (s *signer) sign(text []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	block, _ := pem.Decode(text)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	s.issued++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(s.issued + 1)), Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses,
		NotBefore: time.Now().Add(-5 * time.Minute), NotAfter: time.Now().Add(s.life),
	}
	if s.change != nil {
		s.change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.ca, request.PublicKey, s.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// world is a keeper with an apiserver.
type world struct {
	*testing.T
	mu     sync.Mutex // guards what the test changes while the keeper runs
	api    *fakeapiserver.Server
	signer *signer
	store  nodecert.Store
	want   *x509.CertificateRequest
	health *health.Tracker
	events []string
	// written counts the certificates, fault is what becomes of requests.
	written  int
	fault    func(fakeapiserver.Request) fakeapiserver.Fault
	borrowed bool
	clients  func(*world) []Client
	rotate   bool
	refused  func() bool
	lived    []float64
	keeper   *Keeper
	stop     func()
}

func inBubble(t *testing.T, f func(*testing.T, *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: nodecert.Store{Dir: dir, Prefix: nodecert.Client}, want: ClientRequest("n1"), health: health.NewTracker(logr.Discard()), rotate: true}
		w.signer = newSigner(t, 365*24*time.Hour)
		w.api = fakeapiserver.New(fakeapiserver.Config{
			Seed: 1,
			SignCSR: func(r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
				if !w.approves() {
					return nil, nil
				}
				return w.signer.sign(r.Spec.Request)
			},
			Faults: func(r fakeapiserver.Request) fakeapiserver.Fault {
				w.mu.Lock()
				fault := w.fault
				w.mu.Unlock()
				if fault == nil {
					return fakeapiserver.Fault{}
				}
				return fault(r)
			},
		})
		w.clients = func(w *world) []Client {
			return []Client{{Name: "the bootstrap kubeconfig", New: func() (kubernetes.Interface, error) { return w.api.Client(), nil }, Mend: "make another token"}}
		}
		f(t, w)
		if w.stop != nil {
			w.stop()
		}
		w.api.Close()
	})
}

func (w *world) start() {
	w.Helper()
	cfg := ClientConfig(w.store.Dir, w.rotate)
	if w.store.Prefix == nodecert.Serving {
		cfg = ServingConfig(w.store.Dir)
	}
	reader := nodecert.NewReader(w.store)
	w.keeper = New(cfg, Deps{
		Want: func() (*x509.CertificateRequest, string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.want, "it is not known for what"
		},
		Current: func() (*nodecert.Pair, bool) {
			pair, err := reader.Read()
			if err != nil {
				return nil, false
			}
			return pair, w.borrowed
		},
		Clients: func(*nodecert.Pair) []Client { return w.clients(w) },
		Refused: w.refused,
		Written: func(context.Context) { w.set(func() { w.written++ }) },
		Send:    func(_ context.Context, e node.Event) { w.set(func() { w.events = append(w.events, e.Reason) }) },
		Health:  w.health, Lived: observer(func(v float64) { w.set(func() { w.lived = append(w.lived, v) }) }),
	})
	ctx, cancel := context.WithCancel(klog.NewContext(w.Context(), logr.Discard()))
	done := make(chan struct{})
	go func() { defer close(done); _ = w.keeper.Run(ctx) }()
	w.stop = func() { cancel(); <-done; w.stop = nil }
}

// set changes what the keeper may be looking at.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) approves() bool {
	w.signer.mu.Lock()
	defer w.signer.mu.Unlock()
	return w.signer.approves
}

// approve has the signer answer requests at once, or not.
func (w *world) approve(at bool) {
	w.signer.mu.Lock()
	defer w.signer.mu.Unlock()
	w.signer.approves = at
}

// count is how many certificates the signer has issued.
func (w *world) count() int {
	w.signer.mu.Lock()
	defer w.signer.mu.Unlock()
	return w.signer.issued
}

// seen are the reasons of the events that were sent.
func (w *world) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

type observer func(float64)

func (o observer) Observe(v float64) { o(v) }

// now is the certificate of now; nil when there is none.
func (w *world) now() *x509.Certificate {
	synctest.Wait()
	pair, err := w.store.Read()
	if err != nil {
		return nil
	}
	return pair.Leaf
}

// waits is what health says is waited for.
func (w *world) waits() string {
	synctest.Wait()
	for _, d := range w.health.Dependencies() {
		if !d.Ready {
			return d.Name + ": " + d.Message
		}
	}
	return ""
}

func (w *world) wantWaits(parts ...string) {
	w.Helper()
	got := w.waits()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			w.Errorf("waits for %q; want it to say %q", got, part)
		}
	}
}

func (w *world) requests() []certificatesv1.CertificateSigningRequest {
	w.Helper()
	list, err := w.api.Admin().CertificatesV1().CertificateSigningRequests().List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return list.Items
}

// answer gives the one request that has none a condition, and signs it when it is approved.
func (w *world) answer(kind certificatesv1.RequestConditionType) {
	w.Helper()
	api := w.api.Admin().CertificatesV1().CertificateSigningRequests()
	for _, r := range w.requests() {
		if len(r.Status.Conditions) > 0 {
			continue
		}
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: v1.ConditionTrue, Reason: "Somebody", Message: "said so"}}
		approved, err := api.UpdateApproval(w.Context(), r.Name, &r, metav1.UpdateOptions{})
		if err != nil {
			w.Fatal(err)
		}
		if kind != certificatesv1.CertificateApproved {
			return
		}
		if approved.Status.Certificate, err = w.signer.sign(r.Spec.Request); err != nil {
			w.Fatal(err)
		}
		if _, err := api.UpdateStatus(w.Context(), approved, metav1.UpdateOptions{}); err != nil {
			w.Fatal(err)
		}
		return
	}
	w.Fatal("there is no request to answer")
}

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
		if got := w.waits(); got != "" || w.written != 1 || len(w.seen()) != 0 {
			t.Errorf("still waits for %q, %d written, events %v", got, w.written, w.seen())
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

func TestADeniedRequestIsToldAndAnotherMadeAfterAWhile(t *testing.T) {
	for kind, want := range map[certificatesv1.RequestConditionType][]string{
		certificatesv1.CertificateDenied: {"denied (Somebody: said so)", "CertificateRequestDenied"},
		certificatesv1.CertificateFailed: {"failed (Somebody: said so)", "CertificateRequestFailed"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.approve(false)
				w.start()
				time.Sleep(time.Second)
				w.answer(kind)
				w.wantWaits(want[0], w.requests()[0].Name)
				if !slices.Equal(w.seen(), want[1:]) {
					t.Errorf("events %v", w.seen())
				}
				time.Sleep(50 * time.Second)
				if got := w.requests(); len(got) != 1 {
					t.Errorf("%d requests within a minute", len(got))
				}
				time.Sleep(20 * time.Second)
				if got := w.requests(); len(got) != 2 {
					t.Errorf("%d requests after a minute", len(got))
				}
				w.answer(certificatesv1.CertificateApproved)
				if w.now() == nil || w.waits() != "" {
					t.Errorf("waits for %q", w.waits())
				}
			})
		})
	}
}

func TestARefusalNamesWhoIsRefusedAndWhatToDo(t *testing.T) {
	for status, want := range map[int]string{401: "the bootstrap kubeconfig is refused (Unauthorized): make another token", 403: "system:node-bootstrapper", 503: "the bootstrap kubeconfig: "} {
		inBubble(t, func(t *testing.T, w *world) {
			w.set(func() {
				w.fault = func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Status: status} }
			})
			w.start()
			time.Sleep(10 * time.Second)
			w.wantWaits("no new client certificate: ", want)
			if told := len(w.seen()) == 1 && w.seen()[0] == "CertificateNotRequested"; told != (status != 503) {
				t.Errorf("%d: events %v", status, w.seen())
			}
			w.set(func() { w.fault = nil })
			time.Sleep(time.Minute)
			if w.now() == nil || w.waits() != "" {
				t.Errorf("%d: waits for %q after it was corrected", status, w.waits())
			}
		})
	}
}

func TestTheNextClientIsAskedWhereTheFirstIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.clients = func(w *world) []Client {
			return []Client{
				{Name: "one", New: func() (kubernetes.Interface, error) { return nil, errors.New("it is not there") }},
				{Name: "two", New: func() (kubernetes.Interface, error) { return w.api.Client(), nil }},
			}
		}
		w.start()
		if w.now() == nil {
			t.Errorf("waits for %q", w.waits())
		}
	})
}

func TestARequestThatIsDeletedIsMadeAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.approve(false)
		w.start()
		time.Sleep(time.Second)
		name := w.requests()[0].Name
		if err := w.api.Admin().CertificatesV1().CertificateSigningRequests().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if got := w.requests(); len(got) != 1 || got[0].Name != name {
			t.Errorf("requests %v", got)
		}
	})
}

func TestACertificateThatIsNotWhatWasAskedForIsNotTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.signer.change = func(c *x509.Certificate) { c.Subject.CommonName = "system:node:other" }
		w.start()
		time.Sleep(10 * time.Second)
		w.wantWaits("is not what was asked for", `"system:node:other"`)
		if w.now() != nil || !slices.Contains(w.seen(), "CertificateNotUsable") {
			t.Errorf("events %v", w.seen())
		}
	})
}

func TestACertificateForAnotherNodeIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.set(func() { w.want = ClientRequest("old-name") })
		w.start()
		if w.now() == nil {
			t.Fatal("no certificate")
		}
		w.stop()
		w.set(func() { w.want = ClientRequest("n1") })
		w.start()
		if leaf := w.now(); leaf.Subject.CommonName != "system:node:n1" {
			t.Errorf("the certificate is for %s", leaf.Subject)
		}
	})
}

func TestADamagedCertificateIsSetAsideAndAnotherAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start()
		first := w.now()
		w.stop()
		target, err := os.Readlink(w.store.CurrentPath())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, []byte("-----BEGIN CERT"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.start()
		if leaf := w.now(); leaf == nil || leaf.Equal(first) {
			t.Error("there is no other certificate")
		}
		if asides, _ := filepath.Glob(target + ".damaged-*"); len(asides) != 1 || !slices.Contains(w.seen(), "CertificateDamaged") {
			t.Errorf("set aside: %v, events %v", asides, w.seen())
		}
	})
}

func TestACertificateThatCannotBeWrittenIsKeptUntilItCan(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		// A directory in the link's way: root may write anywhere.
		if err := os.MkdirAll(filepath.Join(w.store.Dir, "kubelet-client-updated.pem", "x"), 0o755); err != nil {
			t.Fatal(err)
		}
		w.start()
		time.Sleep(time.Minute)
		w.wantWaits("a new client certificate cannot be written", w.store.Dir)
		if w.now() != nil || !slices.Equal(w.seen(), []string{"CertificateNotWritten"}) {
			t.Errorf("events %v", w.seen())
		}
		if err := os.RemoveAll(filepath.Join(w.store.Dir, "kubelet-client-updated.pem")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if w.now() == nil || w.waits() != "" || w.count() != 1 {
			t.Errorf("waits for %q, %d issued", w.waits(), w.count())
		}
	})
}

func TestWithoutACertDirNothingIsAskedForAndItIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		dir := w.store.Dir + "/pki"
		w.store.Dir = dir
		w.start()
		time.Sleep(10 * time.Second)
		w.wantWaits("make --cert-dir "+dir, "polylet handout")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if w.now() == nil {
			t.Errorf("waits for %q", w.waits())
		}
	})
}

func TestAClockThatIsAheadOfEachNewCertificateIsNamedAndAsksSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.signer.change = func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = c.NotBefore.Add(-24*time.Hour), time.Now().Add(-time.Hour)
		}
		w.start()
		time.Sleep(30 * time.Minute)
		w.wantWaits("set this machine's clock")
		if w.count() < 2 || w.count() > 6 {
			t.Errorf("%d certificates in half an hour", w.count())
		}
		w.signer.mu.Lock()
		w.signer.change = nil // the clock is set
		w.signer.mu.Unlock()
		time.Sleep(20 * time.Minute)
		if w.waits() != "" {
			t.Errorf("waits for %q", w.waits())
		}
	})
}

func TestACertificateThatTheApiserverRefusesIsReplacedOnceInAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var refused atomic.Bool
		w.refused = refused.Load
		w.start()
		first := w.now()
		time.Sleep(time.Hour)
		if !w.now().Equal(first) {
			t.Fatal("it was replaced before it was refused")
		}
		refused.Store(true) // the authority of clients is another
		time.Sleep(2 * time.Minute)
		if w.now().Equal(first) {
			t.Error("it was not replaced")
		}
		time.Sleep(time.Hour) // and the fault is another one
		if w.count() < 4 || w.count() > 7 {
			t.Errorf("%d certificates in an hour", w.count())
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

// Ten years, a month at a time, with an apiserver that is away for days each time.
func TestInTenYearsNoRenewalIsMissedThoughTheApiserverIsAwayForDays(t *testing.T) {
	for name, life := range map[string]time.Duration{"a year each": 365 * 24 * time.Hour, "three months each": 90 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.signer.life = life
				w.start()
				if w.now() == nil {
					t.Fatal("no certificate")
				}
				end := time.Now().Add(10 * 365 * 24 * time.Hour)
				for month := 0; time.Now().Before(end); month++ {
					// Two days of each month it is away, in three ways.
					w.api.Partition(fakeapiserver.Refuse)
					if month%3 == 1 {
						w.api.Heal()
						w.set(func() {
							w.fault = func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Status: 503} }
						})
					}
					time.Sleep(48 * time.Hour)
					w.set(func() { w.fault = nil })
					w.api.Heal()
					if month%5 == 4 { // it is killed now and then
						w.stop()
						w.start()
					}
					for range 28 {
						time.Sleep(24 * time.Hour)
						if leaf := w.now(); leaf == nil || time.Now().After(leaf.NotAfter) {
							t.Fatalf("month %d: the certificate %v has ended, waits for %q", month, leaf, w.waits())
						}
					}
				}
				most := int(10*365*24*time.Hour/time.Duration(float64(life)*earliest)) + 2
				least := int(10 * 365 * 24 * time.Hour / life)
				if w.count() < least || w.count() > most {
					t.Errorf("%d certificates in ten years; want %d to %d", w.count(), least, most)
				}
				if len(w.lived) != w.count()-1 {
					t.Errorf("%d ages of %d certificates", len(w.lived), w.count())
				}
				for _, age := range w.lived {
					if part := age / (life + 5*time.Minute).Seconds(); part < earliest-0.001 || part > latest+0.001+(48*time.Hour+time.Minute).Seconds()/life.Seconds() {
						t.Errorf("one was replaced after %.3f of its life", part)
					}
				}
			})
		})
	}
}

func TestAServingCertificateIsForAllAddressesOfTheNode(t *testing.T) {
	at := func(kind v1.NodeAddressType, address string) v1.NodeAddress {
		return v1.NodeAddress{Type: kind, Address: address}
	}
	for name, tc := range map[string]struct {
		addresses []v1.NodeAddress
		dnsOnly   bool
		want      string
	}{
		"none":                          {nil, false, ""},
		"a name only":                   {[]v1.NodeAddress{at(v1.NodeHostName, "n")}, false, ""},
		"a name only, and that will do": {[]v1.NodeAddress{at(v1.NodeHostName, "n")}, true, "[n] []"},
		"all kinds": {[]v1.NodeAddress{
			at(v1.NodeHostName, "n"), at(v1.NodeInternalIP, "10.0.0.2"), at(v1.NodeInternalIP, "fd00::2"), at(v1.NodeExternalIP, "1.2.3.4"),
			at(v1.NodeInternalDNS, "n.local"), at(v1.NodeExternalDNS, "n.example"), at(v1.NodeInternalIP, "10.0.0.2"), at(v1.NodeInternalIP, ""),
		}, false, "[n n.example n.local] [1.2.3.4 10.0.0.2 fd00::2]"},
		"a hostname that is an address": {[]v1.NodeAddress{at(v1.NodeHostName, "10.0.0.9")}, false, "[] [10.0.0.9]"},
		"an address that is none":       {[]v1.NodeAddress{at(v1.NodeInternalIP, "x")}, true, ""},
	} {
		got, why := ServingRequest("n", tc.addresses, tc.dnsOnly)
		switch {
		case tc.want == "" && (got != nil || why == ""):
			t.Errorf("%s: %v, %q", name, got, why)
		case tc.want != "" && (got == nil || fmt.Sprint(got.DNSNames, " ", got.IPAddresses) != tc.want || why != ""):
			t.Errorf("%s: %+v, %q; want %s", name, got, why, tc.want)
		}
	}
}
