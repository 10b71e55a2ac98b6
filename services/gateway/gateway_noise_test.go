package gateway

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/net/http2"

	"github.com/polylet/polylet/internal/testkit/eventually"
)

// noise is what an unknown client may send on a connection of HTTP/2.
func noise() map[string]func(net.Conn) {
	begun := func(conn net.Conn) *http2.Framer {
		_, _ = io.WriteString(conn, http2.ClientPreface)
		f := http2.NewFramer(conn, conn)
		_ = f.WriteSettings()
		return f
	}
	return map[string]func(net.Conn){
		"no preface":           func(c net.Conn) { _, _ = io.WriteString(c, strings.Repeat("x", 100)) },
		"headers of stream 0":  func(c net.Conn) { _ = begun(c).WriteRawFrame(http2.FrameHeaders, 4, 0, nil) },
		"a continuation alone": func(c net.Conn) { _ = begun(c).WriteRawFrame(http2.FrameContinuation, 4, 1, nil) },
		"many goodbyes": func(c net.Conn) {
			f := begun(c)
			for range 1000 {
				_ = f.WriteGoAway(1, http2.ErrCodeProtocol, []byte("a\nline"))
			}
		},
		"headers that are none": func(c net.Conn) {
			_ = begun(c).WriteRawFrame(http2.FrameHeaders, 5, 1, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		},
		"a frame too large":   func(c net.Conn) { _ = begun(c).WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<20)) },
		"a window of nothing": func(c net.Conn) { _ = begun(c).WriteRawFrame(http2.FrameWindowUpdate, 0, 0, []byte{0, 0, 0, 0}) },
	}
}

func TestWhatUnknownClientsSendDoesNotFillTheLog(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	h := newHouse(t)
	h.log = funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(line, "HTTP server reports") {
			lines = append(lines, line)
		}
	}, funcr.Options{})
	s := h.start(t, nil)
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
	began := time.Now()
	for range 3 {
		for name, send := range noise() {
			conn, err := d.DialContext(t.Context(), "tcp", s.Addresses()["secure"])
			if err != nil {
				t.Fatal(name, err)
			}
			if err := conn.SetDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			send(conn)
			_, _ = io.Copy(io.Discard, conn) // until the gateway has had enough
			_ = conn.Close()
		}
	}
	said := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(lines)
	}
	eventually.True(t, "it did not come true that the log says something of it", func() bool { return said() > 0 })
	mu.Lock()
	defer mu.Unlock()
	if most := int(time.Since(began)/(10*time.Second)) + 1; len(lines) > most {
		t.Errorf("%d lines, want one in ten seconds: %.1000s", len(lines), strings.Join(lines, "\n"))
	}
}
