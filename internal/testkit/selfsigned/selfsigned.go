// Package selfsigned makes certificates for tests, each signed by its own key or by that of
// another. It must never make one that anything but a test trusts.
package selfsigned

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strconv"
	"testing"
	"time"
)

// New makes the certificate that template describes, and its key. Its serial number
// is 1 where the template has none.
func New(t testing.TB, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, template, template, key.Public(), key), key
}

// By is New with a certificate that another one has signed.
func By(t testing.TB, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, template, parent, key.Public(), signer), key
}

// Thicket are certificates, a client's own first, that lead nowhere, and take who looks for
// a way through them to a CA of this name as long as can be: each of the others may have
// signed each.
func Thicket(t testing.TB, ca pkix.Name) ([]*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	parent := &x509.Certificate{Subject: ca}
	all := []*x509.Certificate{sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "stranger"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, parent, key.Public(), signer)}
	for i := range 9 { // with another name each they are not taken for the same
		all = append(all, sign(t, &x509.Certificate{
			Subject: ca, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign, DNSNames: []string{strconv.Itoa(i) + ".example"},
		}, parent, signer.Public(), signer))
	}
	return all, key
}

func sign(t testing.TB, template, parent *x509.Certificate, key any, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	if template.SerialNumber == nil {
		template.SerialNumber = big.NewInt(1)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// PEM is New in the form of files.
func PEM(t testing.TB, template *x509.Certificate) (cert, key []byte) {
	t.Helper()
	made, private := New(t, template)
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Raw}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}
