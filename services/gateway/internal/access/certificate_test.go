package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/polylet/polylet/internal/testkit/selfsigned"
)

// authority is a CA that looks at few of the certificates that clients show.
type authority struct {
	roots *x509.CertPool
	looks int
}

func (*authority) Name() string                             { return "test" }
func (*authority) CurrentCABundleContent() []byte           { return nil }
func (*authority) AddListener(dynamiccertificates.Listener) {}

func (a *authority) VerifyOptions() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: a.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

func (a *authority) Chain(shown []*x509.Certificate) []*x509.Certificate {
	return shown[:min(len(shown), a.looks)]
}

func TestOnlyWhatMayLeadToTheCAIsVerified(t *testing.T) {
	template := func(name string, ca bool) *x509.Certificate {
		now := time.Now()
		return &x509.Certificate{
			Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
			IsCA: ca, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
	}
	root, rootKey := selfsigned.New(t, template("root", true))
	between, betweenKey := selfsigned.By(t, template("between", true), root, rootKey)
	leaf, _ := selfsigned.By(t, template("admin", false), between, betweenKey)
	ca := &authority{roots: x509.NewCertPool()}
	ca.roots.AddCert(root)
	authn, _ := New(Config{}, nil, ca)
	for looks, want := range map[int]bool{1: false, 2: true} {
		ca.looks = looks
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/pods", http.NoBody)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf, between}}
		info, ok, err := authn.AuthenticateRequest(r)
		if ok != want || ok && info.User.GetName() != "admin" {
			t.Errorf("with %d of its certificates: %v, %v", looks, ok, err)
		}
		if len(r.TLS.PeerCertificates) != 2 {
			t.Error("the connection's own list was cut, which other requests have too")
		}
	}
}
