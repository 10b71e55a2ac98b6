package handler

import (
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// TestAServerThatAsksWithoutEndIsSoonDoneWith: it reads all answers, and so could go on as
// long as the attempt may take, at a small part of what that costs here.
func TestAServerThatAsksWithoutEndIsSoonDoneWith(t *testing.T) {
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS() // for its certificate
	defer certified.Close()
	var sent atomic.Int64
	flood := func(c net.Conn) {
		go func() { _, _ = io.Copy(io.Discard, c) }()
		pings := strings.Repeat(pingFrame, 500)
		_, err := io.WriteString(c, settingsFrame)
		for err == nil {
			_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
			var n int
			n, err = io.WriteString(c, pings)
			sent.Add(int64(n))
		}
	}
	overTLS := func(c net.Conn) {
		flood(tls.Server(c, &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}})) //nolint:gosec // a test's
	}
	for name, c := range map[string]struct {
		serve   func(net.Conn)
		handler func(port int) probe.Handler
	}{
		"gRPC":  {flood, func(port int) probe.Handler { return probe.GRPC{Port: port} }},
		"HTTPS": {overTLS, func(port int) probe.Handler { return probe.HTTPGet{Scheme: "https", Port: port} }},
	} {
		sent.Store(0)
		address, _ := hostile(t, c.serve)
		began := time.Now()
		got := New(Config{}, nil).Run(t.Context(), probe.Target{
			PodIP: "127.0.0.1", Timeout: time.Minute, Handler: c.handler(portOf(t, address)),
		})
		if took := time.Since(began); got.Verdict != probe.Failed || took > 30*time.Second {
			t.Errorf("%s: %+v after %v", name, got, took)
		}
		if n := sent.Load(); n > 16<<20 { // what waits in the kernel's buffers included
			t.Errorf("%s: %d MiB were sent for one attempt", name, n>>20)
		}
	}
}
