package listen

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/testkit/selfsigned"
	"github.com/polylet/polylet/services/gateway/internal/pki"
)

// TestCertificatesThatLeadNowhereTakeLittle: of ten certificates, each of which may have
// signed each, a verification tries a hundred signatures by a key that an unknown client
// has chosen.
func TestCertificatesThatLeadNowhereTakeLittle(t *testing.T) {
	now := time.Now()
	root, _ := selfsigned.New(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	ca, err := pki.LoadClientCA(file, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	shown, _ := selfsigned.Thicket(t, root.Subject)
	port := &TLS{ClientCA: ca}
	took := func(certs []*x509.Certificate) time.Duration {
		least := time.Hour
		for range 5 { // the machine may be busy with something else
			began := time.Now()
			for range 10 {
				if port.knows(certs) {
					t.Fatal("an unknown client's certificate is good")
				}
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	one, all := took(shown[:1]), took(shown)
	t.Logf("%v for one certificate, %v for %d", one/10, all/10, len(shown))
	if all > 40*one {
		t.Errorf("%d certificates take %d times as long as one", len(shown), all/one)
	}
}
