package nodecert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"

	"github.com/polylet/polylet/internal/fsatomic"
)

// keyPath is where the key of a request waits for its certificate, where the kubelet
// has it too.
func (s Store) keyPath() string { return filepath.Join(s.Dir, s.Prefix+".key.tmp") }

// PendingKey is the key of the request that is under way, a new one when there is none.
// It is on the disk before it is used: whoever approves a request would else approve
// one whose key went with a process that was killed. One that is damaged is replaced.
func (s Store) PendingKey() (key crypto.Signer, keyPEM []byte, err error) {
	data, err := ReadFile(s.keyPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrDamaged) {
		return nil, nil, fmt.Errorf("read the key of a certificate signing request: %w", err)
	}
	if parsed, err := keyutil.ParsePrivateKeyPEM(data); err == nil {
		if signer, ok := parsed.(crypto.Signer); ok {
			return signer, blocks(data, isKey), nil
		}
	}
	fresh, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(fresh)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: der})
	if err := fsatomic.WriteFile(s.keyPath(), keyPEM, 0o600); err != nil {
		return nil, nil, err
	}
	return fresh, keyPEM, nil
}

// DropPendingKey forgets the key of a request that has ended.
func (s Store) DropPendingKey() error {
	if err := os.Remove(s.keyPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
