package kubeclient

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestAnApiserverWhoseCertificateHasEndedByThisClockIsNamedWithWhatToDo(t *testing.T) {
	g := &generation{base: &url.URL{Host: "api.example:6443"}}
	err := g.explain(x509.CertificateInvalidError{Cert: &x509.Certificate{NotAfter: time.Now()}, Reason: x509.Expired})
	for _, want := range []string{"apiserver api.example:6443", "this machine's clock", "kubeadm certs renew"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// The clock of a machine that was set back would have a refusal told of hours later.
func TestHowLongAnApiserverRefusesDoesNotFollowTheClock(t *testing.T) {
	var g generation
	g.answered(401)
	if since := g.refused.Load(); since == nil || !strings.Contains(since.String(), "m=") {
		t.Errorf("since %v", since)
	}
}
