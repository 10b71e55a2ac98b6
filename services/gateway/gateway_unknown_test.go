package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/services/gateway/internal/listen"
)

// half opens a connection to a plain port and sends a part of a request.
func half(t *testing.T, address, text string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestUnknownClientsOfTheReadOnlyPortHoldUpNobodyOfTheSecurePort(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	var conns []net.Conn
	for range documentsAtOnce + 8 {
		conns = append(conns, half(t, s.Addresses()["read-only"], "POST /stats/summary HTTP/1.1\r\nHost: 127.0.0.1\r\n"+
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\n"))
	}
	// They have no place on their own port either, see package inflight.
	for name, url := range map[string]string{
		"secure": "https://" + s.Addresses()["secure"] + "/metrics", "read-only": "http://" + s.Addresses()["read-only"] + "/metrics",
	} {
		if got := ask(t, httpClient(t), http.MethodGet, url, "admin-token"); got.status != http.StatusOK {
			t.Errorf("%s: %d", name, got.status)
		}
	}
	// And who sends nothing is sent away.
	for i, conn := range conns {
		if err := conn.SetReadDeadline(time.Now().Add(bodyTime + 30*time.Second)); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(conn)
		if want := "HTTP/1.1 408"; err != nil || len(text) < len(want) || string(text[:len(want)]) != want {
			t.Fatalf("connection %d: %.60q %v", i, text, err)
		}
	}
}

func TestTheReadOnlyPortsPlacesAreItsOwn(t *testing.T) {
	h := newHouse(t)
	h.numbers.pods.Store(5000) // a document that fits into no socket's buffer
	s := h.start(t, nil)
	for i := range documentsAtOnce { // and nobody waits for one of their places
		knockFrom(t, fmt.Sprintf("127.0.2.%d", 1+i), s.Addresses()["read-only"], false, "GET /metrics/cadvisor HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	}
	eventually.True(t, "it did not come true that the port's places are taken", func() bool { return h.numbers.open.Load() == documentsAtOnce })
	if got := ask(t, httpClient(t), http.MethodGet, "https://"+s.Addresses()["secure"]+"/pods", "admin-token"); got.status != http.StatusOK {
		t.Errorf("answered %d", got.status)
	}
	// Who has to wait for a place has one of them cut off.
	if n := h.numbers.open.Load(); n != documentsAtOnce {
		t.Errorf("%d of them are served still", n)
	}
}

func TestOneAddressOfTheReadOnlyPortLeavesOthersTheirPlaces(t *testing.T) {
	h := newHouse(t)
	h.numbers.pods.Store(5000)
	s := h.start(t, nil)
	for range documentsAtOnce + 8 {
		half(t, s.Addresses()["read-only"], "GET /metrics/cadvisor HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	}
	// They take their share of the places of their own port.
	eventually.True(t, "it did not come true that the address's places are taken", func() bool { return h.numbers.open.Load() == documentsOfOne })
	if got := ask(t, from(t, "127.0.1.1"), http.MethodGet, "http://"+s.Addresses()["read-only"]+"/metrics", ""); got.status != http.StatusOK {
		t.Errorf("another address: %d", got.status)
	}
}

// from is a client whose connections come from an address.
func from(t *testing.T, address string) *http.Client {
	t.Helper()
	client := httpClient(t)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	client.Transport.(*http.Transport).DialContext = d.DialContext //nolint:forcetypeassert // httpClient's
	return client
}

func TestUnknownClientsTokensDoNotHoldUpWhoHasACertificate(t *testing.T) {
	h := newHouse(t)
	h.hang = make(chan struct{})
	ca, clientCert := clientCA(t, "cert-admin")
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	s := h.start(t, func(c *Config) { c.ClientCAFile = file })
	base := "https://" + s.Addresses()["secure"]
	if got := ask(t, httpClient(t), http.MethodGet, base+"/metrics", "metrics-token"); got.status != http.StatusOK {
		t.Fatal(got)
	}
	const addresses, each = 8, 25
	ctx, cancel := context.WithCancel(t.Context())
	statuses := make(chan int, addresses*each)
	var group sync.WaitGroup
	for a := range addresses {
		client := from(t, fmt.Sprintf("127.0.1.%d", a+1))
		for i := range each {
			group.Go(func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/pods", http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", fmt.Sprintf("Bearer random-%d-%d", a, i))
				if res, err := client.Do(req); err == nil {
					statuses <- res.StatusCode
					res.Body.Close()
				}
			})
		}
	}
	// What has no place is told so at once; the rest hangs.
	most := reviews().Most - reviews().KnownOnly
	for range addresses*each - most {
		select {
		case status := <-statuses:
			if status != http.StatusTooManyRequests {
				t.Errorf("a token that nobody knows: %d", status)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("more tokens are being reviewed than there are places")
		}
	}
	if got := ask(t, httpClient(t, clientCert), http.MethodGet, base+"/pods", ""); got.status != http.StatusOK {
		t.Errorf("with a certificate: %d %q", got.status, got.body)
	}
	if got := ask(t, httpClient(t), http.MethodGet, base+"/metrics", "metrics-token"); got.status != http.StatusOK {
		t.Errorf("with a token that is known: %d %q", got.status, got.body)
	}
	cancel()
	close(h.hang)
	group.Wait()
	eventually.True(t, "it did not come true that the places are free again", func() bool {
		return ask(t, httpClient(t), http.MethodGet, base+"/pods", "admin-token").status == http.StatusOK
	})
}

func TestAPlainPortOnLoopbackIsReadUnderItsOwnNamesOnly(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, func(c *Config) { c.PageAddress = "127.0.0.1:0" })
	for _, port := range []string{"read-only", "healthz", "page"} {
		for host, want := range map[string]int{
			"evil.example": 421, "evil.example:10255": 421, "127.0.0.1:10255": 200, "localhost:1": 200, "N1": 200, "[::1]:1": 200, "": 200,
		} {
			if host == "" {
				host = s.Addresses()[port]
			}
			path := "/healthz"
			if port == "page" {
				path = "/"
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addresses()[port]+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			res, err := httpClient(t).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("%s as %s: %d, want %d", port, host, res.StatusCode, want)
			}
		}
	}
}

// knock opens a TLS connection and sends text.
func knock(t *testing.T, address, text string, certs ...tls.Certificate) *tls.Conn {
	t.Helper()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, Certificates: certs}}
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	// Who is refused on the way is cut off.
	_, _ = io.WriteString(conn, text)
	return conn.(*tls.Conn) //nolint:forcetypeassert // tls.Dialer's
}

func TestOnlyWhoHasACertificateMaySendALongCommand(t *testing.T) {
	h := newHouse(t)
	ca, clientCert := clientCA(t, "cert-admin")
	_, unknown := clientCA(t, "cert-admin")
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	s := h.start(t, func(c *Config) { c.ClientCAFile = file })
	for name, c := range map[string]struct {
		length int
		certs  []tls.Certificate
		status string
	}{
		"a good certificate":              {900 << 10, []tls.Certificate{clientCert}, "200"},
		"an unknown client's certificate": {900 << 10, []tls.Certificate{unknown}, "431"},
		"a token":                         {900 << 10, nil, "431"},
		"a token, a usual command":        {32 << 10, nil, "200"},
		"a certificate, and longer":       {2 << 20, []tls.Certificate{clientCert}, "431"},
	} {
		text := fmt.Sprintf("GET /metrics?x=%s HTTP/1.1\r\nHost: x\r\n", strings.Repeat("x", c.length))
		if c.certs == nil {
			text += "Authorization: Bearer admin-token\r\n"
		}
		conn := knock(t, s.Addresses()["secure"], text+"\r\n", c.certs...)
		var version, status string
		if _, err := fmt.Fscan(conn, &version, &status); err != nil || status != c.status {
			t.Errorf("%s: %q, %v; want %s", name, status, err, c.status)
		}
	}
}

func TestAFloodOfLargeHeadersCostsLittle(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	address := s.Addresses()["secure"]
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	// 256 unknown clients with headers of 1 MiB that do not end.
	text := "GET / HTTP/1.1\r\nHost: x\r\nX-Large: " + strings.Repeat("x", 1<<20)
	conns := make([]*tls.Conn, listen.DefaultLimits().Unknown)
	for i := range conns {
		conns[i] = knock(t, address, text)
	}
	// Half of what the kernel's killer would be asked for, with both ends in it.
	if grown := int64(heap()) - int64(before); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	if got := ask(t, httpClient(t), http.MethodGet, "https://"+address+"/pods", "admin-token"); got.status != http.StatusOK {
		t.Errorf("beside the flood: %d", got.status)
	}
	runtime.KeepAlive(conns)
}

func TestAnUnknownClientsConnectionHasFewRequestsAtOnce(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
	conn, err := d.DialContext(t.Context(), "tcp", s.Addresses()["secure"])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		settings, ok := frame.(*http2.SettingsFrame)
		if !ok || settings.IsAck() {
			continue
		}
		streams, _ := settings.Value(http2.SettingMaxConcurrentStreams)
		header, _ := settings.Value(http2.SettingMaxHeaderListSize)
		if streams != 16 || header > 70<<10 {
			t.Errorf("%d streams with headers of %d", streams, header)
		}
		return
	}
}

func TestNoPortWithoutAuthenticationServesProfilesOrStreams(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, func(c *Config) { c.PageAddress = "127.0.0.1:0" })
	for _, port := range []string{"read-only", "healthz", "page"} {
		for _, path := range []string{
			"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/podsync/heap", "/debug/flags/v", "/configz", "/flagz", "/statusz", "/logs/", "/logs/a.log",
			"/exec/ns/p/c?command=id&output=1", "/run/ns/p/c?cmd=id", "/attach/ns/p/c?output=1", "/portForward/ns/p", "/containerLogs/ns/p/c",
			"/checkpoint/ns/p/c", "/runningpods/",
		} {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
				if got := ask(t, httpClient(t), method, "http://"+s.Addresses()[port]+path, ""); got.status < 400 {
					t.Errorf("%s %s at %s: %d %.100q", method, path, port, got.status, got.body)
				}
			}
		}
	}
}

// TestOfRequestsThatWaitOnTheReadOnlyPortLittleIsHeld: each waits ten seconds for its turn,
// with as many headers of a few letters as fit.
func TestOfRequestsThatWaitOnTheReadOnlyPortLittleIsHeld(t *testing.T) {
	h := newHouse(t)
	h.numbers.pods.Store(5000) // a document that fits into no socket's buffer
	address := h.start(t, nil).Addresses()["read-only"]
	for range documentsAtOnce {
		half(t, address, "GET /metrics/cadvisor HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	}
	time.Sleep(time.Second) // they have their places
	before, many := heap(), strings.Builder{}
	for n := range 8000 {
		fmt.Fprintf(&many, "%x:\r\n", n)
	}
	const requests, most = 100, 80 << 20 // a busy machine with the race detector sees 62
	for range requests {
		half(t, address, "GET /metrics/cadvisor HTTP/1.1\r\nHost: 127.0.0.1\r\n"+many.String()+"\r\n")
	}
	// It is five times as long until they are refused.
	if grown := mostHeld(before, 2*time.Second); grown > most {
		t.Errorf("%d KiB are held of each of %d requests", grown/requests>>10, requests)
	}
}

// TestHeadersWithoutEndTakeLittleWhereNobodyIsAsked: who sends them has 30 seconds, and
// 256 connections; on two ports those were all that this process may have.
func TestHeadersWithoutEndTakeLittleWhereNobodyIsAsked(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, func(c *Config) { c.PageAddress = "127.0.0.1:0" })
	const conns, most = 50, 40 << 20 // a busy machine with the race detector sees 23
	for _, port := range []string{"read-only", "healthz", "page"} {
		address := s.Addresses()[port]
		for _, length := range []int{15 << 10, 60 << 10} {
			many := strings.Builder{}
			many.WriteString("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
			for n := 0; many.Len() < length; n++ {
				fmt.Fprintf(&many, "%x:\r\n", n)
			}
			before := heap()
			for range conns {
				half(t, address, many.String())
			}
			if grown := mostHeld(before, time.Second); grown > most {
				t.Errorf("%s: %d KiB are held of each of %d headers of %d KiB", port, grown/conns>>10, conns, length>>10)
			}
		}
	}
}

// TestHeadersWithoutEndOfWhoHasACertificateTakeLittle: who has any certificate of the
// cluster's sends a megabyte of headers of a few letters, which are twenty here, and no end.
func TestHeadersWithoutEndOfWhoHasACertificateTakeLittle(t *testing.T) {
	h := newHouse(t)
	ca, clientCert := clientCA(t, "somebody")
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	address := h.start(t, func(c *Config) { c.ClientCAFile = file }).Addresses()["secure"]
	many := strings.Builder{}
	many.WriteString("GET /pods HTTP/1.1\r\nHost: x\r\n")
	for n := 0; many.Len() < 1000<<10; n++ {
		fmt.Fprintf(&many, "%x:\r\n", n)
	}
	const conns, most = 16, 200 << 20
	before := heap()
	for range conns {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{clientCert}}}
		conn, err := d.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_, _ = io.WriteString(conn, many.String()) // who may not send as much is sent away
	}
	if grown := mostHeld(before, time.Second); grown > most {
		t.Errorf("%d connections hold %d MiB", conns, grown>>20)
	}
}

// TestAnUnknownClientsCertificatesAreFew: crypto/tls takes 256 KiB of them, and holds ten times
// as much while the connection lasts; 256 connections were more than this process may have.
func TestAnUnknownClientsCertificatesAreFew(t *testing.T) {
	h := newHouse(t)
	ca, clientCert := clientCA(t, "cert-admin")
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	address := h.start(t, func(c *Config) { c.ClientCAFile = file }).Addresses()["secure"]
	for certificates, want := range map[int]bool{1: true, 10: true, 11: false, 200: false} {
		chain := tls.Certificate{PrivateKey: clientCert.PrivateKey}
		for range certificates {
			chain.Certificate = append(chain.Certificate, clientCert.Certificate[0])
		}
		client := httpClient(t, chain)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/pods", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		if (err == nil) != want {
			t.Errorf("%d certificates: %v", certificates, err)
		}
	}
}
