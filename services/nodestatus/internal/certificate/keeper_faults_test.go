package certificate

import (
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

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

// expired is the transport to an apiserver whose certificate has ended.
type expired struct{}

func (expired) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time " + time.Now().String() + " is after 1999"}
}

// The library's error has the time in it, and so is another one each time.
func TestAnApiserverThatCannotBeTrustedByThisClockIsToldOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.clients = func(*world) []Client {
			return []Client{{Name: "the bootstrap kubeconfig", New: func() (kubernetes.Interface, error) {
				return kubernetes.NewForConfig(&rest.Config{Host: "https://api.example", Transport: expired{}})
			}}}
		}
		w.start()
		time.Sleep(10 * time.Minute)
		w.wantWaits("the bootstrap kubeconfig: ", "this machine's clock", "kubeadm certs renew")
		if !slices.Equal(w.seen(), []string{"CertificateNotRequested"}) {
			t.Errorf("events %v", w.seen())
		}
	})
}

// Alerts look at what was counted in the last five minutes.
func TestARequestThatNobodyAnswersIsCountedAndAnEventTellsOfIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.approve(false)
		w.start()
		time.Sleep(4 * time.Minute)
		if w.failures.Load() != 0 || len(w.seen()) != 0 {
			t.Errorf("%d failures, events %v, of a request that may still be answered", w.failures.Load(), w.seen())
		}
		for range 4 {
			before := w.failures.Load()
			time.Sleep(5 * time.Minute)
			if w.failures.Load() == before {
				t.Errorf("no failure is counted in five minutes")
			}
		}
		if !slices.Equal(w.seen(), []string{"CertificateRequestPending"}) || len(w.requests()) != 1 {
			t.Errorf("events %v, %d requests", w.seen(), len(w.requests()))
		}
	})
}

// A proxy may keep a watch open whose apiserver is gone.
func TestAnAnswerIsFoundWhereTheWatchSaysNothingAndDoesNotEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.approve(false)
		w.set(func() {
			w.fault = func(q fakeapiserver.Request) fakeapiserver.Fault {
				if q.Verb != "watch" {
					return fakeapiserver.Fault{}
				}
				return fakeapiserver.Fault{EventDelay: 1000 * time.Hour}
			}
		})
		w.start()
		time.Sleep(time.Minute)
		w.answer(certificatesv1.CertificateApproved)
		time.Sleep(6 * time.Minute)
		if w.now() == nil || w.waits() != "" {
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

func TestACertificateThatCannotBeReadIsNotReplacedForThat(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start()
		time.Sleep(time.Minute)
		w.stop()
		asked, path := len(w.requests()), w.store.CurrentPath()
		at, err := os.Readlink(path)
		if err != nil {
			t.Fatal(err)
		}
		link := func(to string) {
			if err := errors.Join(os.Remove(path), os.Symlink(to, path)); err != nil {
				t.Fatal(err)
			}
		}
		link(strings.Repeat("n", 256)) // no file has such a name
		w.start()
		time.Sleep(10 * time.Minute)
		if got := w.requests(); len(got) != asked || !slices.Equal(w.seen(), []string{"CertificateNotRead"}) {
			t.Errorf("%d requests, %d were made before; events %v", len(got), asked, w.seen())
		}
		w.wantWaits("file name too long", "no other is asked for")
		link(at)
		time.Sleep(10 * time.Minute)
		if ok, _ := w.health.Ready(); !ok || len(w.requests()) != asked {
			t.Errorf("when it can be read again: %s, %d requests", w.waits(), len(w.requests()))
		}
	})
}

// A bootstrap token lives for a day, and whoever approves requests may take longer: the
// operator puts another token there.
func TestARequestIsLookedAtWithTheCredentialOfNow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.approve(false)
		token := "first"
		w.clients = func(w *world) []Client {
			return []Client{{Name: "the bootstrap kubeconfig", New: func() (kubernetes.Interface, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				cfg := w.api.RESTConfig()
				cfg.UserAgent = token
				return kubernetes.NewForConfig(cfg)
			}}}
		}
		w.start()
		time.Sleep(time.Minute)
		w.set(func() {
			w.fault = func(r fakeapiserver.Request) fakeapiserver.Fault {
				if r.UserAgent == "first" {
					return fakeapiserver.Fault{Status: http.StatusUnauthorized}
				}
				return fakeapiserver.Fault{}
			}
		})
		w.api.DropWatches()
		time.Sleep(48 * time.Hour)
		w.set(func() { token = "second" })
		time.Sleep(time.Minute)
		w.approve(true)
		w.answer(certificatesv1.CertificateApproved)
		time.Sleep(time.Minute)
		if w.now() == nil || len(w.requests()) != 1 {
			t.Errorf("there is no certificate, of %d requests: %s", len(w.requests()), w.waits())
		}
	})
}
