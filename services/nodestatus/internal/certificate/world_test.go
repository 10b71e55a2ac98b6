package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
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
	// change changes what is issued, and exchange what is answered; nil changes nothing.
	change   func(*x509.Certificate)
	exchange func(signed []byte) []byte
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
	signed := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if s.exchange != nil {
		signed = s.exchange(signed)
	}
	return signed, nil
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
	failures counter
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
			return []Client{{Name: "the bootstrap kubeconfig", New: func() (kubernetes.Interface, error) { return w.api.Client(), nil }, Mend: "make another token", Allow: "bind it to system:node-bootstrapper"}}
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
		Health:  w.health, Failures: &w.failures, Lived: observer(func(v float64) { w.set(func() { w.lived = append(w.lived, v) }) }),
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

// counter counts failures.
type counter struct{ atomic.Int64 }

func (c *counter) Inc() { c.Add(1) }

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
