package gateway

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"testing"
	"time"
)

// webSocket opens a session whose WebSocket the gateway translates.
func webSocket(t *testing.T, s *Service, command string) (net.Conn, *bufio.Reader) {
	t.Helper()
	u := sessionURL(s, "/exec/ns/p/c", url.Values{"command": {command}, "input": {"1"}, "output": {"1"}})
	conn := knock(t, s.Addresses()["secure"], fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n"+
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+
		"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n", u.RequestURI()))
	from := bufio.NewReader(conn)
	res, err := http.ReadResponse(from, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", res, err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn, from
}

// frameOf begins a frame of n bytes, not masked by anything.
func frameOf(n int, channel byte) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{0x82, 0xff}, uint64(n)), 0, 0, 0, 0, channel) //nolint:gosec // it is not negative
}

// TestOfALongWebSocketFrameWhatHasComeIsPassedOn: what is held until a frame is whole
// are 32 MiB of each session, and a dozen of those are all memory of the process.
func TestOfALongWebSocketFrameWhatHasComeIsPassedOn(t *testing.T) {
	h := newHouse(t)
	conn, from := webSocket(t, h.start(t, nil), "cat")
	if _, err := conn.Write(append(frameOf(16<<20, 0), bytes.Repeat([]byte("x"), 1<<20)...)); err != nil {
		t.Fatal(err)
	}
	// Of what comes back nearly everything is what was sent.
	some := make([]byte, 256<<10)
	if _, err := io.ReadFull(from, some); err != nil {
		t.Fatalf("nothing came back before the frame is whole: %v", err)
	}
}

// TestATerminalsSizeWithoutEndIsNotHeld: the translator reads a whole value.
func TestATerminalsSizeWithoutEndIsNotHeld(t *testing.T) {
	h := newHouse(t)
	conn, from := webSocket(t, h.start(t, nil), "silent")
	if _, err := from.ReadBytes('x'); err != nil {
		t.Fatalf("the command said nothing: %v", err)
	}
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const pieces, of = 1024, 64 << 10
	before := held()
	piece := append(append(frameOf(1+of, 4), '"'), bytes.Repeat([]byte("x"), of-1)...)
	for range pieces {
		if _, err := conn.Write(piece); err != nil {
			break // the session is over
		}
		piece[len(frameOf(0, 4))] = 'x'
	}
	if after := held(); after > before+pieces*of/2 {
		t.Errorf("%d MiB are held", (after-before)>>20)
	}
}
