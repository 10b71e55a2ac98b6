package pki

import (
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
)

func TestASelfSignedPairIsMadeOnceWhereItCanBeWritten(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{FallbackCertFile: filepath.Join(dir, "kubelet.crt"), FallbackKeyFile: filepath.Join(dir, "kubelet.key"), Hosts: []string{"node", "127.0.0.1"}}
	var serials []string
	for range 2 {
		s, err := Load(cfg, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		pair, err := s.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Leaf.VerifyHostname("127.0.0.1"); err != nil {
			t.Error(err)
		}
		serials = append(serials, pair.Leaf.SerialNumber.String())
	}
	if serials[0] != serials[1] {
		t.Error("a restart made another pair")
	}
	cfg.FallbackCertFile = filepath.Join(dir, "no", "kubelet.crt")
	cfg.FallbackKeyFile = filepath.Join(dir, "no", "kubelet.key")
	s, err := Load(cfg, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if got := shown(t, s); got != "node" {
		t.Errorf("in memory it shows %q", got)
	}
}
