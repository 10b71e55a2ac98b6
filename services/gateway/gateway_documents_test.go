package gateway

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/testkit/eventually"
)

// TestOneCallerThatReadsNothingLeavesDocumentsToOthers: who may read one document, and does
// not, holds each for minutes.
func TestOneCallerThatReadsNothingLeavesDocumentsToOthers(t *testing.T) {
	h := newHouse(t)
	h.numbers.pods.Store(5000)
	s := h.start(t, nil)
	for range documentsAtOnce + 8 {
		knock(t, s.Addresses()["secure"], "GET /metrics/cadvisor HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n\r\n")
	}
	client := from(t, "127.0.1.1")
	for range 5 {
		begin := time.Now()
		if got := ask(t, client, http.MethodGet, "https://"+s.Addresses()["secure"]+"/pods", "admin-token"); got.status != http.StatusOK || time.Since(begin) > documentWait/2 {
			t.Fatalf("another address: %d after %s", got.status, time.Since(begin))
		}
	}
}

// TestAddressesThatReadNothingLeaveDocumentsToOthers: a dozen suffice when each takes what one
// may, and they hold all places.
func TestAddressesThatReadNothingLeaveDocumentsToOthers(t *testing.T) {
	h := newHouse(t)
	h.numbers.pods.Store(5000)
	s := h.start(t, nil)
	for port, header := range map[string]string{"secure": "Authorization: Bearer admin-token\r\n", "read-only": ""} {
		var lazy []net.Conn
		for i := range documentsAtOnce + 8 {
			lazy = append(lazy, knockFrom(t, fmt.Sprintf("127.0.2.%d", 1+i), s.Addresses()[port], port == "secure",
				"GET /metrics/cadvisor HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n"))
		}
		awaitBegun(t, lazy, documentsAtOnce)
		scheme := "http://"
		if port == "secure" {
			scheme = "https://"
		}
		client := from(t, "127.0.1.1")
		for range 2 {
			url := scheme + s.Addresses()[port] + "/pods"
			got := ask(t, client, http.MethodGet, url, "admin-token")
			// A machine may be too slow to have found them out by then; else they hold them for minutes.
			for end := time.Now().Add(30 * time.Second); got.status == http.StatusTooManyRequests && time.Now().Before(end); {
				got = ask(t, client, http.MethodGet, url, "admin-token")
			}
			if got.status != http.StatusOK {
				t.Errorf("%s: another address: %d", port, got.status)
			}
		}
	}
}

// TestStreamsThatNobodyReadsLeaveDocumentsToOthers: of HTTP/2 the stream is ended, and the
// connection goes on.
func TestStreamsThatNobodyReadsLeaveDocumentsToOthers(t *testing.T) {
	h := newHouse(t)
	h.numbers.pods.Store(5000)
	s := h.start(t, nil)
	base := "https://" + s.Addresses()["secure"]
	var lazy []*http.Client
	for i := range documentsAtOnce {
		client := from(t, fmt.Sprintf("127.0.3.%d", 1+i))
		transport := client.Transport.(*http.Transport) //nolint:forcetypeassert // httpClient's
		// What fits into its buffer counts as received.
		transport.HTTP2, transport.DisableCompression = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}, true
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/metrics/cadvisor", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer admin-token")
		res, err := client.Do(req)
		if err != nil || res.ProtoMajor != 2 {
			t.Fatal(res, err)
		}
		defer res.Body.Close()
		lazy = append(lazy, client)
	}
	if open := h.numbers.open.Load(); open != documentsAtOnce {
		t.Fatalf("%d documents are under way: they are too small", open)
	}
	if got := ask(t, from(t, "127.0.1.1"), http.MethodGet, base+"/pods", "admin-token"); got.status != http.StatusOK {
		t.Errorf("another address: %d", got.status)
	}
	// stats hears of it after who asked has had its place.
	eventually.True(t, "it did not come true that one of them is cut off", func() bool { return h.numbers.open.Load() < documentsAtOnce })
	if open := h.numbers.open.Load(); open < documentsAtOnce/2 {
		t.Errorf("of %d one was to be cut off, %d go on", documentsAtOnce, open)
	}
	for i, client := range lazy {
		if got := ask(t, client, http.MethodGet, base+"/healthz", "admin-token"); got.status != http.StatusOK {
			t.Errorf("connection %d does not go on: %d", i, got.status)
		}
	}
}

// TestWhoReadNothingOfThePagesMetricsHoldFewDocuments: any process of the machine may ask for
// them, and each that is under way is held by stats.
func TestWhoReadNothingOfThePagesMetricsHoldFewDocuments(t *testing.T) {
	h := newHouse(t)
	h.numbers.pods.Store(5000)
	s := h.start(t, func(c *Config) { c.PageAddress = "127.0.0.1:0" })
	page := s.Addresses()["page"]
	var lazy []net.Conn
	for range 2 * documentsAtOnce {
		lazy = append(lazy, knockFrom(t, "127.0.0.1", page, false, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	}
	awaitBegun(t, lazy, documentsOfOne)
	client := from(t, "127.0.1.1")
	for range 2 {
		if got := ask(t, client, http.MethodGet, "http://"+page+"/api/overview", ""); got.status != http.StatusOK {
			t.Errorf("another address: %d %s", got.status, got.body)
		}
	}
	if most := h.numbers.most.Load(); most > documentsAtOnce {
		t.Errorf("stats had %d documents under way at once", most)
	}
}

// knockFrom sends text from an address.
func knockFrom(t *testing.T, from, to string, secured bool, text string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if secured {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// awaitBegun waits until so many answers have begun.
func awaitBegun(t *testing.T, conns []net.Conn, n int) {
	t.Helper()
	begun := make(chan struct{}, len(conns))
	for _, conn := range conns {
		go func() {
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				begun <- struct{}{}
			}
		}()
	}
	for i := range n {
		select {
		case <-begun:
		case <-time.After(30 * time.Second):
			t.Fatalf("%d of %d answers have begun", i, n)
		}
	}
}
