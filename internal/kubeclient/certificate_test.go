package kubeclient

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// certificate makes a key and its certificate, in one text as the kubelet's
// file has them, the key first.
func certificate(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
}

func endOf(cfg *rest.Config) time.Time {
	_, end := CertificateTimes(cfg)
	return end
}

func TestTheEndOfTheClientCertificateIsReadWhereItStands(t *testing.T) {
	first, second := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(48*time.Hour).Truncate(time.Second)
	path := filepath.Join(t.TempDir(), "client.pem")
	write := func(data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inFile := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertFile: path}}
	if got := endOf(inFile); !got.IsZero() {
		t.Errorf("a file that is not there ends %v", got)
	}
	for _, end := range []time.Time{first, second} { // rotated
		write(certificate(t, end))
		if got := endOf(inFile); !got.Equal(end) {
			t.Errorf("ends %v, want %v", got, end)
		}
	}
	write([]byte("nonsense"))
	if got := endOf(inFile); !got.IsZero() {
		t.Errorf("nonsense ends %v", got)
	}
	inline := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certificate(t, first)}}
	if got := endOf(inline); !got.Equal(first) {
		t.Errorf("ends %v, want %v", got, first)
	}
	if begin, end := CertificateTimes(inline); !begin.Equal(time.Unix(0, 0)) || !end.Equal(first) {
		t.Errorf("from %v to %v", begin, end)
	}
	if got := endOf(&rest.Config{BearerToken: "x"}); !got.IsZero() {
		t.Errorf("no certificate ends %v", got)
	}
}
