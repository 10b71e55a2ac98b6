package pki

import (
	"crypto/x509"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
)

func TestAReplacedClientCACountsFromTheNextRequestOn(t *testing.T) {
	dir := t.TempDir()
	file, _ := writePair(t, dir, "one")
	ca, err := LoadClientCA(file, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	before, _ := ca.VerifyOptions()
	writePair(t, dir, "two")
	after, ok := ca.VerifyOptions()
	if !ok || before.Roots.Equal(after.Roots) || len(ca.CurrentCABundleContent()) == 0 {
		t.Error("the bundle was not replaced")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if gone, ok := ca.VerifyOptions(); !ok || !gone.Roots.Equal(after.Roots) {
		t.Error("a bundle that went away took the clients with it")
	}
	if after.KeyUsages[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("key usages %v", after.KeyUsages)
	}
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadClientCA(file, logr.Discard()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v does not name the file", err)
	}
}

// A disk that hangs keeps whoever looks at it, and nobody else.
func TestWhileAFileIsBeingLookedAtOthersHaveWhatWasReadBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		cert, key := writePair(t, dir, "one")
		ca, err := LoadClientCA(cert, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		s, err := Load(Config{CertFile: cert, KeyFile: key}, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		ca.look <- struct{}{} // somebody looks, and the disk does not answer
		s.look <- struct{}{}
		writePair(t, dir, "two")
		if _, ok := ca.VerifyOptions(); !ok || len(ca.CurrentCABundleContent()) == 0 {
			t.Error("there is no bundle meanwhile")
		}
		if got := shown(t, s); got != "one" {
			t.Errorf("meanwhile it shows %q", got)
		}
		<-ca.look
		<-s.look
		if got := shown(t, s); got != "two" {
			t.Errorf("afterwards it shows %q", got)
		}
	})
}
