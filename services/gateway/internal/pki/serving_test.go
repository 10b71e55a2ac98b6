package pki

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

func writePair(t *testing.T, dir, host string) (cert, key string) {
	t.Helper()
	pair, err := selfSigned([]string{host}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := pair.write(cert, key); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func shown(t *testing.T, s *Serving) string {
	t.Helper()
	pair, err := s.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf.DNSNames[0]
}

func TestAReplacedServingPairIsShownFromTheNextHandshakeOn(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePair(t, dir, "one")
	s, err := Load(Config{CertFile: cert, KeyFile: key}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if got := shown(t, s); got != "one" {
		t.Errorf("shows %q", got)
	}
	writePair(t, dir, "two")
	if got := shown(t, s); got != "two" {
		t.Errorf("after the files were replaced it shows %q", got)
	}
	if err := os.WriteFile(cert, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, s); got != "two" {
		t.Errorf("with a broken file it shows %q, want what was good", got)
	}
	if s.NotAfter().Before(time.Now().Add(364 * 24 * time.Hour)) {
		t.Errorf("ends %v", s.NotAfter())
	}
}

func TestServingPairsThatOthersWillWriteMayBeMissing(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "tls.crt")
	if _, err := Load(Config{CertFile: missing, KeyFile: missing}, logr.Discard()); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("error %v does not name the file", err)
	}
	s, err := Load(Config{CertFile: missing, KeyFile: filepath.Join(dir, "tls.key"), Wait: true, Hosts: []string{"meanwhile"}}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if got := shown(t, s); got != "meanwhile" || s.NotAfter().IsZero() {
		t.Errorf("before there is one, shows %q", got)
	}
	writePair(t, dir, "late")
	if got := shown(t, s); got != "late" {
		t.Errorf("shows %q", got)
	}
	if err := os.Remove(missing); err != nil {
		t.Fatal(err)
	}
	if got := shown(t, s); got != "late" {
		t.Errorf("after it was removed, shows %q", got)
	}
}

func TestTheFirstLookAtAServingPairIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cert, key := writePair(t, t.TempDir(), "one")
		s := NewServing(cert, key, logr.Discard())
		s.look <- struct{}{}
		got := make(chan string, 1)
		go func() { got <- shown(t, s) }()
		synctest.Wait()
		select {
		case host := <-got:
			t.Fatalf("before anybody has looked it shows %q", host)
		default:
		}
		<-s.look
		if host := <-got; host != "one" {
			t.Errorf("it shows %q", host)
		}
	})
}

func TestWhileTheFilesAreLookedAtForTheFirstTimeOthersAreShownTheOneOfMeanwhile(t *testing.T) {
	dir := t.TempDir()
	s, err := Load(Config{CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key", Wait: true, Hosts: []string{"meanwhile"}}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	s.look <- struct{}{} // somebody does, and the disk is slow
	got := make(chan string, 1)
	go func() { got <- shown(t, s) }()
	select {
	case name := <-got:
		if name != "meanwhile" {
			t.Errorf("shows %q", name)
		}
	case <-time.After(30 * time.Second):
		t.Error("a handshake waits for the disk")
		<-s.look
		<-got
	}
}
