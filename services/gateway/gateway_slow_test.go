package gateway

import (
	"crypto/tls"
	"io"
	"net/http"
	"runtime"
	"testing"

	"github.com/polylet/polylet/internal/testkit/eventually"
)

// slowReader is what the gateway, its peer and a client may hold together of an
// answer that the client does not read.
const slowReader = 1 << 20

func TestClientsThatReadNothingHoldLittleAndKeepNobodyOut(t *testing.T) {
	h := newHouse(t)
	h.fake.logBytes = 256 << 20
	s := h.start(t, nil)
	base := "https://" + s.Addresses()["secure"]
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // No machine has 8 EiB.
	}
	others := httpClient(t)
	ask(t, others, "GET", base+"/pods", "admin-token")
	before, goroutines := live(), runtime.NumGoroutine()
	const clients = 32
	var answers []io.Closer
	for range clients {
		// HTTP/1.1: what is not read stays in the kernel, not in this test.
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/containerLogs/ns/p/c?follow=1", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer admin-token")
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, res.Body)
		if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
			t.Errorf("the first byte: %v", err)
		}
	}
	if n := openSessions(t, s); n != clients {
		t.Errorf("%d logs are being read, want %d", n, clients)
	}
	for range 8 { // each time more would be held, if anything kept on reading for them
		if got := ask(t, others, "GET", base+"/pods", "admin-token"); got.status != 200 {
			t.Errorf("/pods beside them: %d", got.status)
		}
		if held := live() - before; held > clients*slowReader {
			t.Fatalf("%d KiB are held for each", held>>10/clients)
		}
	}
	for _, a := range answers {
		a.Close()
	}
	eventually.True(t, "it did not come true that nothing is open for them", func() bool { return openSessions(t, s) == 0 })
	eventually.True(t, "it did not come true that their goroutines are gone", func() bool { return runtime.NumGoroutine() < goroutines+clients })
}
