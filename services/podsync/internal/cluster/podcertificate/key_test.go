package podcertificate

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"testing"
)

func TestAKeyOfEachTypeIsProvenToBeOnes(t *testing.T) {
	for _, kind := range []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		key, proof, err := newKey(kind)
		if err != nil {
			t.Fatal(kind, err)
		}
		block, rest := pem.Decode(key)
		if block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
			t.Fatalf("%s: the key is no PEM", kind)
		}
		private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			t.Fatal(kind, err)
		}
		own, ok := private.(crypto.Signer)
		if !ok {
			t.Fatalf("%s: the key cannot sign", kind)
		}
		request, err := x509.ParseCertificateRequest(proof)
		if err != nil || request.CheckSignature() != nil {
			t.Fatalf("%s: the proof does not hold: %v", kind, err)
		}
		if same, ok := own.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !same.Equal(request.PublicKey) {
			t.Errorf("%s: the proof is of another key", kind)
		}
	}
	if _, _, err := newKey("DSA"); err == nil || err.Error() != `unknown key type "DSA"` {
		t.Error(err)
	}
}
