package server

import (
	"testing"

	gatewayv1 "github.com/polylet/polylet/api/gen/polylet/gateway/v1"
	"github.com/polylet/polylet/services/gateway/internal/listen"
)

func TestSessionsAreThoseOfTheSecurePort(t *testing.T) {
	s := New([]*listen.Listener{
		listen.New(listen.Config{Name: "secure", Address: "127.0.0.1:10250"}),
		listen.New(listen.Config{Name: "healthz", Address: "127.0.0.1:10248"}),
	}, func() int32 { return 3 })
	res, err := s.ListListeners(t.Context(), &gatewayv1.ListListenersRequest{})
	if err != nil || len(res.GetListeners()) != 2 {
		t.Fatalf("%v %v", res, err)
	}
	secure, healthz := res.GetListeners()[0], res.GetListeners()[1]
	if secure.GetAddress() != "127.0.0.1:10250" || secure.GetOpenSessions() != 3 {
		t.Errorf("secure: %v", secure)
	}
	if healthz.GetAddress() != "127.0.0.1:10248" || healthz.GetOpenSessions() != 0 {
		t.Errorf("healthz: %v", healthz)
	}
	if secure.GetCertificateNotAfter() != nil || healthz.GetCertificateNotAfter() != nil {
		t.Errorf("a port without a certificate has its end: %v", res)
	}
}
