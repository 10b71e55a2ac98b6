package streaming

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// keptAlive is a connection to the runtime on which the client's SPDY pings are
// answered here and do not go on to the runtime. A runtime closes its connection
// as soon as it has sent all, while much of that may still wait for a slow client;
// what comes to it then makes the kernel drop the rest, and every client pings
// once in 5 s: an output that takes long to read lost its last megabytes and
// looked whole. Everything but pings, and every other protocol, passes unchanged.
type keptAlive struct {
	net.Conn
	// onEnd is called when the runtime has said the end of the connection itself.
	onEnd func()

	mu    sync.Mutex
	out   spdyFrames // to the runtime; one goroutine writes
	in    spdyFrames // from it; one goroutine reads
	pongs []byte     // not read yet
	woken bool       // a deadline was set to wake the reader
}

func answerPings(c net.Conn, onEnd func()) net.Conn { return &keptAlive{Conn: c, onEnd: onEnd} }

// Write passes on all but pings.
func (c *keptAlive) Write(p []byte) (int, error) {
	pass, pongs := c.out.withoutPings(p)
	if len(pongs) > 0 {
		c.answer(pongs)
	}
	for _, part := range pass {
		if len(part) == 0 {
			continue
		}
		if _, err := c.Conn.Write(part); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// answer keeps answers for the reader, and wakes it when it could take them now.
func (c *keptAlive) answer(pongs []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pongs) < mostPongs {
		c.pongs = append(c.pongs, pongs[:min(len(pongs), mostPongs-len(c.pongs))]...)
	}
	if c.in.between() {
		c.woken = true
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // a connection that is closed wakes by itself
	}
}

// Read reads from the runtime; answers to pings stand between its frames.
func (c *keptAlive) Read(p []byte) (int, error) {
	for {
		if n := c.readPongs(p); n > 0 {
			return n, nil
		}
		n, err := c.Conn.Read(p)
		c.mu.Lock()
		if c.in.follow(p[:n]) {
			c.onEnd()
		}
		woken := c.woken && errors.Is(err, os.ErrDeadlineExceeded)
		if woken {
			c.woken = false
			err = c.Conn.SetReadDeadline(time.Time{})
		}
		c.mu.Unlock()
		if n > 0 || err != nil || !woken {
			return n, err
		}
	}
}

func (c *keptAlive) readPongs(p []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.in.between() {
		return 0
	}
	n := copy(p, c.pongs)
	c.pongs = c.pongs[n:]
	return n
}

const (
	// frameHead are a frame's kind, flags and length; source: SPDY/3.1, 2.2.
	frameHead = 8
	pingFrame = frameHead + 4
	// mostPongs bounds the answers that wait, in bytes: a client waits for one before
	// it asks again, and who asks on without reading gets no more of them.
	mostPongs = 64 * pingFrame
	// longestHead bounds the HTTP head that is looked at.
	longestHead = 64 << 10
)

// spdyFrames follows one direction of a connection that begins with an HTTP head
// and speaks SPDY after it. What turns out to be something else is not looked at.
type spdyFrames struct {
	head  []byte // the HTTP head as far as it came
	begun bool   // the head is over
	other bool   // it is not SPDY
	kind  []byte // the beginning of a frame: less than its head, or less than a ping
	left  int    // of the frame's content
}

// between says that the next byte begins a frame.
func (f *spdyFrames) between() bool { return f.begun && !f.other && f.left == 0 && len(f.kind) == 0 }

// follow takes note of what passes, and says whether it has the frame in it with
// which a side ends the connection (GOAWAY).
func (f *spdyFrames) follow(p []byte) (ended bool) {
	for p = p[f.skip(p):]; len(p) > 0 && !f.other; p = p[f.skip(p):] {
		n := min(frameHead-len(f.kind), len(p))
		f.kind = append(f.kind, p[:n]...)
		p = p[n:]
		if len(f.kind) == frameHead {
			ended = ended || isControl(f.kind, 7)
			f.left, f.kind = length(f.kind), f.kind[:0]
		}
	}
	return ended
}

// withoutPings returns what is to pass, in order, and the client's pings. The
// parts are valid until the next call. The beginning of a frame is held back
// until it is clear that it is no ping.
func (f *spdyFrames) withoutPings(p []byte) (pass [][]byte, pings []byte) {
	from, at := 0, 0 // what passes begins at from
	for at < len(p) {
		if at += f.skip(p[at:]); at == len(p) {
			break
		}
		begin, held := at, len(f.kind)
		for at < len(p) && (len(f.kind) < frameHead || len(f.kind) < pingFrame && isPing(f.kind)) {
			f.kind = append(f.kind, p[at])
			at++
		}
		switch {
		case len(f.kind) < frameHead, len(f.kind) < pingFrame && isPing(f.kind):
			return append(pass, p[from:begin]), pings
		case isPing(f.kind) && f.kind[pingFrame-1]&1 == 1:
			pass, from = append(pass, p[from:begin]), at
			pings = append(pings, f.kind...)
		default: // an answer to a ping of the runtime's has an even number
			if held > 0 {
				pass = append(pass, bytes.Clone(f.kind[:held])) // nothing stands before it
			}
			f.left = frameHead + length(f.kind) - len(f.kind)
		}
		f.kind = f.kind[:0]
	}
	return append(pass, p[from:]), pings
}

// skip returns how many bytes belong to the HTTP head, to the content of a frame,
// or to another protocol.
func (f *spdyFrames) skip(p []byte) int {
	switch {
	case f.other:
		return len(p)
	case !f.begun:
		return f.skipHead(p)
	}
	n := min(f.left, len(p))
	f.left -= n
	return n
}

func (f *spdyFrames) skipHead(p []byte) int {
	had := len(f.head)
	f.head = append(f.head, p...)
	const over = "\r\n\r\n"
	searched := max(0, had-len(over)+1)
	end := bytes.Index(f.head[searched:], []byte(over))
	if end >= 0 {
		end += searched
	}
	switch {
	case end < 0 && len(f.head) <= longestHead:
		return len(p)
	case end < 0:
		f.other, f.head = true, nil
		return len(p)
	}
	f.begun, f.other = true, !upgradesToSPDY(f.head[:end])
	f.head = nil
	return end + len(over) - had
}

// upgradesToSPDY says whether a request or an answer does.
func upgradesToSPDY(head []byte) bool {
	lines := strings.Split(string(head), "\r\n")
	if strings.HasPrefix(lines[0], "HTTP/") && !strings.Contains(lines[0], " 101 ") {
		return false
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		if http.CanonicalHeaderKey(strings.TrimSpace(name)) == "Upgrade" && strings.EqualFold(strings.TrimSpace(value), "SPDY/3.1") {
			return true
		}
	}
	return false
}

// length is that of a frame's content.
func length(head []byte) int { return int(binary.BigEndian.Uint32(head[4:frameHead]) & 0xffffff) }

// isPing says whether the head of a frame is that of a ping.
func isPing(head []byte) bool { return isControl(head, 6) && length(head) == 4 }

// isControl says whether it is that of a control frame of a type.
func isControl(head []byte, kind uint16) bool {
	const control = 1 << 15
	return len(head) >= frameHead && binary.BigEndian.Uint16(head)&control != 0 && binary.BigEndian.Uint16(head[2:]) == kind
}
