package images

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// certificateFiles are the self-signed pair that agnhost serves TLS with when a
// test names its files; no test verifies it.
func certificateFiles(dir string) ([]file, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for agnhost: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for agnhost: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("write the key of agnhost: %w", err)
	}
	var files []file
	for _, part := range []struct {
		name  string
		block pem.Block
	}{
		{"localhost.crt", pem.Block{Type: "CERTIFICATE", Bytes: cert}},
		{"localhost.key", pem.Block{Type: "PRIVATE KEY", Bytes: secret}},
	} {
		f, err := textFile(dir, part.name, string(pem.EncodeToMemory(&part.block)))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}
