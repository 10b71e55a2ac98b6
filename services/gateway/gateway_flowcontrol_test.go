package gateway

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// heap is what this process holds now.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// mostHeld is the most that this process holds beyond before within a time: when a server
// has read what was sent, nothing tells.
func mostHeld(before int64, within time.Duration) (most int64) {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		most = max(most, heap()-before)
	}
	return most
}

// unread sends requests with a large header, and many small ones, on an HTTP/2 connection
// from an address on which it lets no answer come. It returns when the server has read them.
func unread(t *testing.T, from, address string, streams, header, names int) {
	t.Helper()
	d := tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}},
		Config:    &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}},
	}
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	framer := http2.NewFramer(conn, conn)
	_, err = io.WriteString(conn, http2.ClientPreface)
	check := func(more error) {
		if err == nil {
			err = more
		}
	}
	check(framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	for i := range streams {
		block.Reset()
		all := [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", "/pods"}}
		if header > 0 {
			all = append(all, [2]string{"x-large", strings.Repeat(fmt.Sprintf("%08d", i), header/8)})
		}
		for n := range names {
			all = append(all, [2]string{fmt.Sprintf("x%d-%d", i, n), ""})
		}
		for _, field := range all {
			check(fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: true}))
		}
		id, rest := uint32(2*i+1), block.Bytes()
		first := rest[:min(len(rest), 16000)]
		rest = rest[len(first):]
		check(framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: true, EndHeaders: len(rest) == 0}))
		for len(rest) > 0 {
			part := rest[:min(len(rest), 16000)]
			rest = rest[len(part):]
			check(framer.WriteContinuation(id, len(rest) == 0, part))
		}
	}
	check(framer.WritePing(false, [8]byte{}))
	for err == nil {
		var frame http2.Frame
		if frame, err = framer.ReadFrame(); err == nil && frame.Header().Type == http2.FramePing {
			return
		}
	}
	t.Fatal(err)
}

// TestOfRequestsWhoseAnswersNobodyReadsLittleIsHeld: who has no credentials at all opens
// streams whose answers may not come, and may do so for hours.
func TestOfRequestsWhoseAnswersNobodyReadsLittleIsHeld(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	address := s.Addresses()["secure"]
	before := heap()
	const conns, streams, header = 40, 16, 60 << 10
	for range conns {
		unread(t, "127.0.0.1", address, streams, header, 0)
	}
	grown := heap() - before
	for end := time.Now().Add(30 * time.Second); grown > conns*streams*header/2 && time.Now().Before(end); grown = heap() - before {
		time.Sleep(100 * time.Millisecond) // the last ones are being answered
	}
	if grown > conns*streams*header/2 {
		t.Errorf("%d MiB are held of %d MiB of headers", grown>>20, conns*streams*header>>20)
	}
	if got := ask(t, httpClient(t), http.MethodGet, "https://"+address+"/pods", "admin-token"); got.status != http.StatusOK {
		t.Errorf("beside the flood: %d", got.status)
	}
}

// TestUnknownClientsWhoLetNoAnswerComeKeepNobodyOut: two addresses without credentials held all
// that requests may, one of them all that its own may: an apiserver's, say, to whose
// address the network in between translates a pod's.
func TestUnknownClientsWhoLetNoAnswerComeKeepNobodyOut(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	address := s.Addresses()["secure"]
	for range 50 {
		for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
			unread(t, from, address, 15, 60<<10, 0)
			unread(t, from, address, 15, 0, 0) // into what is left
		}
	}
	if got := ask(t, httpClient(t), http.MethodGet, "https://"+address+"/pods", "admin-token"); got.status != http.StatusOK {
		t.Errorf("beside the flood: %d", got.status)
	}
}

// TestOfManySmallHeadersNothingIsHeld: a map that was emptied is as large as before.
func TestOfManySmallHeadersNothingIsHeld(t *testing.T) {
	h := newHouse(t)
	address := h.start(t, nil).Addresses()["secure"]
	before := heap()
	const conns, streams, each = 20, 16, 32 << 10
	for range conns {
		unread(t, "127.0.0.1", address, streams, 0, 1500)
	}
	grown := heap() - before
	for end := time.Now().Add(30 * time.Second); grown > conns*streams*each && time.Now().Before(end); grown = heap() - before {
		time.Sleep(100 * time.Millisecond) // the last ones are being answered
	}
	if grown > conns*streams*each {
		t.Errorf("%d KiB are held of each request", grown/conns/streams>>10)
	}
}
