package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/polylet/polylet/internal/fsatomic"
)

// selfSignedLife is a year, as the kubelet's.
const selfSignedLife = 365 * 24 * time.Hour

type selfSignedPair struct {
	pair      *tls.Certificate
	cert, key []byte
}

// selfSigned makes a pair for names and addresses; the first names the subject.
func selfSigned(hosts []string, now time.Time) (*selfSignedPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: fmt.Sprintf("%s@%d", first(hosts), now.Unix())},
		// An hour of grace for clocks that differ.
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(selfSignedLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if h != "" {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	out := &selfSignedPair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
	pair, err := tls.X509KeyPair(out.cert, out.key)
	if err != nil {
		return nil, err
	}
	if pair.Leaf, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	out.pair = &pair
	return out, nil
}

func (p *selfSignedPair) write(certFile, keyFile string) error {
	if err := fsatomic.WriteFile(keyFile, p.key, 0o600); err != nil {
		return err
	}
	return fsatomic.WriteFile(certFile, p.cert, 0o644)
}

func first(hosts []string) string {
	if len(hosts) == 0 {
		return "polylet"
	}
	return hosts[0]
}
