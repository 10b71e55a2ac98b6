package tlsbound

import (
	"crypto/tls"
	"errors"
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

// bundle is how many certificates are as long as the authorities that a system trusts,
// which some serve with their own.
const bundle = 250

func TestAServerMayShowWhatCryptoTLSReads(t *testing.T) {
	const answer = 16 * shortHandshake // which is no handshake
	for _, certificates := range []int{1, 11, bundle} {
		for protocol, next := range map[string][]string{"HTTP/1.1": {"http/1.1"}, "HTTP/2.0": {"h2", "http/1.1"}} {
			var d net.Dialer
			client := &http.Client{Transport: &http.Transport{
				DialTLSContext:    Dial(d.DialContext, &tls.Config{InsecureSkipVerify: true, NextProtos: next}),
				DisableKeepAlives: true, ForceAttemptHTTP2: true,
			}}
			address := server(t, certificates, answer).URL
			for range 20 { // one after the other: each gives its slot back
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				res, err := client.Do(req)
				if err != nil {
					t.Fatalf("%d certificates over %s: %v", certificates, protocol, err)
				}
				body, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || len(body) != answer || res.Proto != protocol {
					t.Errorf("%d certificates over %s: %d bytes over %s, %v", certificates, protocol, len(body), res.Proto, err)
				}
				client.CloseIdleConnections()
			}
		}
	}
}

func TestOfServersThatShowMuchFewAreConnected(t *testing.T) {
	var d net.Dialer
	dial := Dial(d.DialContext, &tls.Config{InsecureSkipVerify: true})
	address := func(s *httptest.Server, host string) string {
		return net.JoinHostPort(host, strings.TrimPrefix(s.URL, "https://127.0.0.1:"))
	}
	long, short := server(t, bundle, 0), server(t, 3, 0)
	var conns []net.Conn
	open := func(whose string, s *httptest.Server, host string) error {
		conn, err := dial(For(t.Context(), whose), "tcp", address(s, host))
		if err == nil {
			conns = append(conns, conn)
			t.Cleanup(func() { _ = conn.Close() })
		}
		return err
	}
	for len(conns) < 2 {
		if err := open("a", long, "127.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	for range 20 {
		err = errors.Join(err, open("a", long, "127.0.0.1"))
	}
	if most := mostLongOfOne / (100 << 10); !errors.Is(err, ErrBusy) || len(conns) > most {
		t.Errorf("one has %d connections: %v", len(conns), err)
	}
	if err := open("a", short, "127.0.0.1"); err != nil {
		t.Errorf("one that shows little: %v", err)
	}
	if err := open("b", long, "127.0.0.1"); err != nil {
		t.Errorf("of another: %v", err)
	}
	_ = conns[0].Close()
	if err := open("a", long, "127.0.0.1"); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
}
