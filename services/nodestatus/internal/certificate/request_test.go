package certificate

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// kubeadm join waits for five minutes, and after denials the pauses are longer.
func TestWhoJoinsTheNodeAgainWaitsForNoPause(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.approve(false)
		w.start()
		for range 6 { // until the pauses are the longest
			time.Sleep(2 * slowMax)
			w.answer(certificatesv1.CertificateDenied)
		}
		time.Sleep(time.Minute)
		w.wantWaits("was denied")
		before := len(w.requests())
		w.keeper.Changed() // nothing has
		time.Sleep(time.Second)
		if now := len(w.requests()); now != before {
			t.Fatalf("%d requests, %d before", now, before)
		}
		w.approve(true)
		w.keeper.Anew()
		if w.now() == nil || w.waits() != "" {
			t.Errorf("with another bootstrap kubeconfig it waits for %q", w.waits())
		}
	})
}

func TestARequestThatWaitsIsMadeAtTheApiserverOfTheNewBootstrapKubeconfig(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.approve(false)
		first := w.api
		w.clients = func(w *world) []Client {
			return []Client{{Name: "the bootstrap kubeconfig", New: func() (kubernetes.Interface, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.api.Client(), nil
			}}}
		}
		w.start()
		time.Sleep(time.Minute)
		w.keeper.Anew() // the same apiserver: the request is found again
		time.Sleep(time.Minute)
		if n := len(w.requests()); n != 1 {
			t.Fatalf("%d requests", n)
		}
		w.wantWaits("waits for the approval of CSR")
		other := fakeapiserver.New(fakeapiserver.Config{Seed: 2, SignCSR: func(r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
			return w.signer.sign(r.Spec.Request)
		}})
		defer first.Close()
		w.set(func() { w.api = other })
		w.keeper.Anew()
		if w.now() == nil {
			t.Errorf("it waits for %q at the apiserver of before", w.waits())
		}
	})
}

// The kubeconfig is that cluster's by then, which does not know the certificate.
func TestACertificateThatCouldNotBeWrittenYetIsNotOfUseToWhoJoinsAnotherCluster(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		first := w.api
		w.clients = func(w *world) []Client {
			return []Client{{Name: "the bootstrap kubeconfig", New: func() (kubernetes.Interface, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.api.Client(), nil
			}}}
		}
		w.signer.exchange = func(signed []byte) []byte {
			if err := os.Rename(w.store.Dir, w.store.Dir+".away"); err != nil {
				t.Error(err)
			}
			return signed
		}
		w.start()
		time.Sleep(time.Minute)
		w.wantWaits("cannot be written", "it is kept")
		asked := false
		other := fakeapiserver.New(fakeapiserver.Config{Seed: 2, SignCSR: func(r *certificatesv1.CertificateSigningRequest) ([]byte, error) {
			w.signer.mu.Lock()
			asked, w.signer.exchange = true, nil
			w.signer.mu.Unlock()
			return w.signer.sign(r.Spec.Request)
		}})
		defer first.Close()
		w.set(func() { w.api = other })
		w.keeper.Anew()
		if err := os.Rename(w.store.Dir+".away", w.store.Dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if w.now() == nil || !asked {
			t.Errorf("the other cluster was asked: %v; waits for %q", asked, w.waits())
		}
	})
}

func TestThatThereIsNoBootstrapKubeconfigIsToldOnlyWhereNothingElseIsAmiss(t *testing.T) {
	absent := Client{Name: "the bootstrap kubeconfig", New: func() (kubernetes.Interface, error) {
		return nil, fmt.Errorf("there is no bootstrap kubeconfig: %w", fs.ErrNotExist)
	}}
	for _, alone := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world) {
			w.clients = func(w *world) []Client {
				if alone {
					return []Client{absent}
				}
				return []Client{absent, {Name: "the node's client certificate", New: func() (kubernetes.Interface, error) { return w.api.Client(), nil }}}
			}
			w.api.Partition(fakeapiserver.Refuse)
			w.start()
			time.Sleep(10 * time.Second)
			w.wantWaits("no new client certificate: ")
			if told := strings.Contains(w.waits(), "there is no bootstrap kubeconfig"); told != alone {
				t.Errorf("alone %v: waits for %q", alone, w.waits())
			}
		})
	}
}

func TestWhatIsAmissWithBothIsOneLine(t *testing.T) {
	err := join([]error{errors.New("one"), &problem{error: errors.New("two"), reason: "Two"}, &problem{error: errors.New("three"), reason: "Three"}})
	var p *problem
	if !errors.As(err, &p) || p.reason != "Two" || err.Error() != "one; two; three" {
		t.Errorf("%v, %+v", err, p)
	}
}

// Whoever signs may be wrong or lie: nothing of it becomes the node's certificate, and the
// next request is another one.
func TestNoAnswerIsTakenThatIsOfNoUse(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(w *world, signed []byte) []byte
		change func(*x509.Certificate)
		want   string
	}{
		"of another key": {
			answer: func(w *world, _ []byte) []byte {
				other, err := ecdsa.GenerateKey(w.signer.key.Curve, rand.Reader)
				if err != nil {
					w.Fatal(err)
				}
				template := &x509.Certificate{SerialNumber: w.signer.ca.SerialNumber, Subject: Subject("n1"), NotAfter: time.Now().Add(time.Hour)}
				der, err := x509.CreateCertificate(rand.Reader, template, w.signer.ca, other.Public(), w.signer.key)
				if err != nil {
					w.Fatal(err)
				}
				return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
			},
			want: "private key does not match public key",
		},
		"no certificate": {answer: func(*world, []byte) []byte { return []byte("-----BEGIN CERT") }, want: "does not hold a certificate"},
		"with a chain that nobody can read": {
			answer: func(_ *world, signed []byte) []byte {
				return append(signed, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")})...)
			},
			want: "number 2 of its chain cannot be read",
		},
		"far too long":        {answer: func(_ *world, signed []byte) []byte { return append(signed, make([]byte, 1<<20)...) }, want: "longer than"},
		"for servers":         {change: func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, want: `it is not for "client auth"`},
		"without the group":   {change: func(c *x509.Certificate) { c.Subject.Organization = nil }, want: "group system:nodes"},
		"of an administrator": {change: func(c *x509.Certificate) { c.Subject.CommonName = "kubernetes-admin" }, want: "kubernetes-admin"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.signer.change, w.signer.exchange = tc.change, nil
				if tc.answer != nil {
					w.signer.exchange = func(signed []byte) []byte { return tc.answer(w, signed) }
				}
				w.start()
				time.Sleep(10 * time.Second)
				w.wantWaits("was answered with is not what was asked for", tc.want, "look at what approves and signs requests of signer kubernetes.io/kube-apiserver-client-kubelet")
				if w.now() != nil || !slices.Equal(w.seen(), []string{"CertificateNotUsable"}) {
					t.Errorf("events %v, certificate %v", w.seen(), w.now())
				}
				key := w.requests()[0].Name
				w.signer.mu.Lock()
				w.signer.change, w.signer.exchange = nil, nil
				w.signer.mu.Unlock()
				time.Sleep(2 * time.Minute)
				if requests := w.requests(); w.now() == nil || len(requests) != 2 || requests[0].Name == requests[1].Name {
					t.Errorf("after it was corrected: %d requests, %s first; waits for %q", len(requests), key, w.waits())
				}
			})
		})
	}
}

// What a person or a program has written there goes into a line of the log, and into an event.
func TestOfAReasonThatSomebodyGivesALineIsTold(t *testing.T) {
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr"}}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Reason: "No", Message: "two\nlines " + strings.Repeat("ä", 5000)}}
	got := judge(r, "").err.Error()
	if !strings.Contains(got, "csr was denied (No: two lines ää") || strings.Contains(got, "\n") || len(got) > 600 || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// loud is the transport to an apiserver that says more than anybody reads.
type loud struct{ status int }

func (l loud) RoundTrip(*http.Request) (*http.Response, error) {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":%d,"message":"no\n%s"}`, l.status, strings.Repeat("x", 1<<20))
	return &http.Response{StatusCode: l.status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func TestOfWhatAnApiserverSaysWithoutEndALineIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.clients = func(*world) []Client {
			return []Client{{Name: "the bootstrap kubeconfig", New: func() (kubernetes.Interface, error) {
				return kubernetes.NewForConfig(&rest.Config{Host: "https://api.example", Transport: loud{http.StatusForbidden}})
			}}}
		}
		w.start()
		w.wantWaits("the bootstrap kubeconfig may not ask for a certificate", "no xxx")
		if got := w.waits(); len(got) > 5000 {
			t.Errorf("%d bytes are told", len(got))
		}
	})
	if got := waiting("csr", "signer", answer{state: strings.Repeat("y", 1<<20)}); len(got) > 5000 {
		t.Errorf("%d bytes are told of a request that cannot be looked at", len(got))
	}
}

// Whoever may make requests can make one of a name that was deleted; what is signed without
// an approval nobody has allowed.
func TestAnAnswerCountsOfTheOwnRequestAndOnceItIsApproved(t *testing.T) {
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr", UID: "own"}}
	r.Status.Certificate = []byte("x")
	if got := judge(r, "own"); got.done() {
		t.Errorf("without an approval: %+v", got)
	}
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
	if got := judge(r, "own"); string(got.issued) != "x" {
		t.Errorf("approved: %+v", got)
	}
	if got := judge(r, "another"); got.issued != nil || got.err == nil || !strings.Contains(got.err.Error(), "made anew by somebody") {
		t.Errorf("another's: %+v", got)
	}
}

func TestACallThatHangsIsToldAndNoOtherWaitsForIt(t *testing.T) {
	for verb, want := range map[string]string{"create": "no new client certificate: the bootstrap kubeconfig: ", "get": "cannot look at it: "} {
		inBubble(t, func(t *testing.T, w *world) {
			w.approve(false)
			w.set(func() {
				w.fault = func(q fakeapiserver.Request) fakeapiserver.Fault {
					return fakeapiserver.Fault{Hang: q.Verb == verb && q.UserAgent != "admin"}
				}
			})
			w.start()
			time.Sleep(callWithin + 15*time.Second)
			w.wantWaits(want)
			w.set(func() { w.fault = nil })
			w.approve(true)
			time.Sleep(2 * time.Minute)
			if verb == "get" {
				w.answer(certificatesv1.CertificateApproved)
				time.Sleep(time.Minute)
			}
			if w.now() == nil {
				t.Errorf("%s answers again, and it waits for %q", verb, w.waits())
			}
		})
	}
}

// Somebody has put another there meanwhile.
func TestARequestIsWaitedForNoLongerThanACertificateIsWanted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.approve(false)
		w.start()
		time.Sleep(time.Minute)
		w.wantWaits("waits for the approval")
		_, keyPEM, err := w.store.PendingKey()
		if err != nil {
			t.Fatal(err)
		}
		signed, err := w.signer.sign(w.requests()[0].Spec.Request)
		if err != nil {
			t.Fatal(err)
		}
		p, err := nodecert.Parse(signed, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.store.Write(p, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := w.waits(); got != "" {
			t.Errorf("it waits for %q", got)
		}
	})
}

func TestASignerOfSecondsIsNotAskedAllTheTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.signer.change = func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now(), time.Now().Add(2*time.Second) }
		w.start()
		time.Sleep(10 * time.Minute)
		if got := w.count(); got < 10 || got > 310 {
			t.Errorf("%d certificates in ten minutes", got)
		}
	})
}

// A change of the configuration is not taken back for it.
func TestOfARequestThatWasMadeItIsSaidThatItIsWaitedFor(t *testing.T) {
	for _, state := range []string{"", approved, "connection refused"} {
		if got := waiting("csr", "signer", answer{state: state}); !strings.HasPrefix(got, "waits for ") {
			t.Errorf("%q: %q", state, got)
		}
	}
}
