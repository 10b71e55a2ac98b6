package tlsbound

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// server shows its certificate so many times, and answers with so many bytes.
func server(t *testing.T, certificates, answer int) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", answer))
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	one := &s.TLS.Certificates[0]
	for leaf := one.Certificate[0]; len(one.Certificate) < certificates; {
		one.Certificate = append(one.Certificate, leaf)
	}
	return s
}

func TestOfAServersCertificatesFewAreRead(t *testing.T) {
	const answer = 4 * longestHandshake // which is no handshake
	for _, c := range []struct {
		certificates int
		refused      string
	}{{1, ""}, {mostCertificates, ""}, {mostCertificates + 1, "shows 11 certificates"}, {longestHandshake / 500, "more than 64 KiB"}} {
		for protocol, next := range map[string][]string{"HTTP/1.1": {"http/1.1"}, "HTTP/2.0": {"h2", "http/1.1"}} {
			var d net.Dialer
			client := &http.Client{Transport: &http.Transport{
				DialTLSContext:    Dial(d.DialContext, &tls.Config{InsecureSkipVerify: true, NextProtos: next}),
				DisableKeepAlives: true, ForceAttemptHTTP2: true,
			}}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server(t, c.certificates, answer).URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.Do(req)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%d certificates over %s: %v", c.certificates, protocol, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%d certificates over %s: %v", c.certificates, protocol, err)
				continue
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || len(body) != answer || res.Proto != protocol {
				t.Errorf("%d certificates over %s: %d bytes over %s, %v", c.certificates, protocol, len(body), res.Proto, err)
			}
		}
	}
}
