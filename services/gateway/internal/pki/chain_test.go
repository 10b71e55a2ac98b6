package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/testkit/selfsigned"
)

// authority describes one.
func authority(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
}

// client describes a client's certificate.
func client(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// trusting loads a bundle with these.
func trusting(t *testing.T, roots ...*x509.Certificate) *ClientCA {
	t.Helper()
	var text []byte
	for _, root := range roots {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})...)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	ca, err := LoadClientCA(file, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestOfWhatAClientShowsOnlyWhatTheBundleVouchesForIsLookedAt(t *testing.T) {
	root, rootKey := selfsigned.New(t, authority("root"))
	other, _ := selfsigned.New(t, authority("other"))
	one, oneKey := selfsigned.By(t, authority("one"), root, rootKey)
	two, twoKey := selfsigned.By(t, authority("two"), one, oneKey)
	leaf, leafKey := selfsigned.By(t, client("leaf"), two, twoKey)
	byLeaf, _ := selfsigned.By(t, authority("by a client"), leaf, leafKey)
	strange, strangeKey := selfsigned.New(t, authority("root"))
	byStrange, _ := selfsigned.By(t, authority("one"), strange, strangeKey)
	ca := trusting(t, other, root)
	for name, c := range map[string]struct{ shown, want []*x509.Certificate }{
		"nothing":                {nil, nil},
		"its own":                {[]*x509.Certificate{leaf}, []*x509.Certificate{leaf}},
		"a chain":                {[]*x509.Certificate{leaf, two, one}, []*x509.Certificate{leaf, two, one}},
		"a chain in other order": {[]*x509.Certificate{leaf, one, two, root}, []*x509.Certificate{leaf, one, two, root}},
		"what a client signed":   {[]*x509.Certificate{leaf, two, one, byLeaf}, []*x509.Certificate{leaf, two, one}},
		"another of the name":    {[]*x509.Certificate{leaf, strange, byStrange}, []*x509.Certificate{leaf}},
		"half a chain":           {[]*x509.Certificate{leaf, two}, []*x509.Certificate{leaf}},
	} {
		shown := slices.Clone(c.shown)
		got := ca.Chain(shown)
		if len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
			t.Errorf("%s: %d are looked at, want %d, its own first", name, len(got), len(c.want))
		}
		for _, cert := range c.want {
			if !slices.Contains(got, cert) {
				t.Errorf("%s: %s is not looked at", name, cert.Subject.CommonName)
			}
		}
		if !slices.Equal(shown, c.shown) {
			t.Errorf("%s: what was shown has changed, which others look at too", name)
		}
	}
}

// The gateway verifies with the bundle of the same moment.
func TestAChainLeadsToTheBundleAsItIsNow(t *testing.T) {
	first, _ := selfsigned.New(t, authority("first"))
	next, nextKey := selfsigned.New(t, authority("next"))
	between, betweenKey := selfsigned.By(t, authority("between"), next, nextKey)
	leaf, _ := selfsigned.By(t, client("leaf"), between, betweenKey)
	ca := trusting(t, first)
	if err := os.WriteFile(ca.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: next.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ca.Chain([]*x509.Certificate{leaf, between}); len(got) != 2 {
		t.Errorf("%d are looked at once the bundle was replaced, want 2", len(got))
	}
}

// Other programs read the same bundle with the library.
func TestOfABundleTheSameIsTrustedAsByTheLibrary(t *testing.T) {
	root, _ := selfsigned.New(t, authority("root"))
	other, _ := selfsigned.New(t, authority("other"))
	block := func(b pem.Block) string { return string(pem.EncodeToMemory(&b)) }
	text := "# a comment\n" + block(pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}) +
		block(pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED"}, Bytes: other.Raw}) +
		block(pem.Block{Type: "TRUSTED CERTIFICATE", Bytes: other.Raw}) + block(pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")})
	want := x509.NewCertPool()
	want.AppendCertsFromPEM([]byte(text))
	got := x509.NewCertPool()
	for _, cert := range certificates([]byte(text)) {
		got.AddCert(cert)
	}
	if !got.Equal(want) || len(certificates([]byte(text))) != 1 {
		t.Errorf("%d are trusted", len(certificates([]byte(text))))
	}
}
