package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateLife is long enough for a development cluster that stays up.
const certificateLife = 30 * 24 * time.Hour

// authority signs certificates; its own stands in file.
type authority struct {
	dir, file string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
}

// pair is the paths of a certificate and its key.
type pair struct{ cert, key string }

// subject is who a certificate is for. Without addresses and names it is a
// client's certificate, with any of them also a server's.
type subject struct {
	name  string
	group []string
	ips   []net.IP
	dns   []string
}

// openAuthority takes the authority that an earlier start has left in dir, or
// makes one: what it has signed, and what pods hold of it, stays good.
func openAuthority(dir, name string) (*authority, error) {
	files := pair{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
	loaded, err := tls.LoadX509KeyPair(files.cert, files.key)
	if errors.Is(err, fs.ErrNotExist) {
		return newAuthority(dir, name)
	}
	if err != nil {
		return nil, fmt.Errorf("open certificate authority %s: %w", name, err)
	}
	key, ok := loaded.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("open certificate authority %s: %s has a %T", name, files.key, loaded.PrivateKey)
	}
	return &authority{dir: dir, file: files.cert, cert: loaded.Leaf, key: key}, nil
}

func newAuthority(dir, name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority %s: %w", name, err)
	}
	template, err := newTemplate(subject{name: name})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make certificate authority %s: %w", name, err)
	}
	files := pair{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
	if err := files.write(der, key); err != nil {
		return nil, err
	}
	return &authority{dir: dir, file: files.cert, cert: cert, key: key}, nil
}

// keyFile is the path of the authority's own key, for the certificate signer.
func (a *authority) keyFile() string {
	return a.file[:len(a.file)-len(".crt")] + ".key"
}

// issue signs a certificate and stores it as file.crt and file.key.
func (a *authority) issue(file string, s subject) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("issue a certificate for %s: %w", s.name, err)
	}
	template, err := newTemplate(s)
	if err != nil {
		return pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(s.ips)+len(s.dns) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("issue a certificate for %s: %w", s.name, err)
	}
	files := pair{filepath.Join(a.dir, file+".crt"), filepath.Join(a.dir, file+".key")}
	return files, files.write(der, key)
}

func newTemplate(s subject) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: s.name, Organization: s.group},
		IPAddresses:  s.ips, DNSNames: s.dns,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLife),
	}, nil
}

// openServiceAccountKey returns the key that service-account tokens are signed
// with, and its public half; it makes them when there are none.
func openServiceAccountKey(dir string) (pair, error) {
	files := pair{filepath.Join(dir, "sa.pub"), filepath.Join(dir, "sa.key")}
	if _, err := os.Stat(files.key); err == nil {
		return files, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make the service-account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return pair{}, fmt.Errorf("make the service-account key: %w", err)
	}
	if err := writePEM(files.cert, "PUBLIC KEY", public, 0o644); err != nil {
		return pair{}, err
	}
	return files, writeKey(files.key, key)
}

func (p pair) write(der []byte, key *ecdsa.PrivateKey) error {
	if err := writePEM(p.cert, "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return writeKey(p.key, key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode a key: %w", err)
	}
	return writePEM(path, "EC PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, data, mode); err != nil {
		return fmt.Errorf("write key material: %w", err)
	}
	return nil
}
