package streaming

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

const (
	spdyRequest = "POST /exec/x HTTP/1.1\r\nHost: runtime\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
	spdyAnswer  = "HTTP/1.1 101 Switching Protocols\r\nupgrade: spdy/3.1\r\n\r\n"
)

func ping(id uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{0x80, 3, 0, 6, 0, 0, 0, 4}, id)
}

// data is a frame of a stream with a content that looks like pings.
func data(stream uint32, size int) []byte {
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, stream), uint32(size)) //nolint:gosec // short
	return append(head, bytes.Repeat(ping(1), size/pingFrame+1)[:size]...)
}

// conversation is what a client sends: all of it, what a runtime is to get, and
// which pings are in it.
func conversation() (all, passed, pings []byte) {
	all, passed = []byte(spdyRequest), []byte(spdyRequest)
	other := []byte{0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 5} // a reset of a stream
	for i, frame := range [][]byte{data(1, 0), ping(1), data(3, 40000), ping(3), ping(5), other, data(1, 11), ping(2), data(5, 12), ping(7)} {
		all = append(all, frame...)
		if i == 1 || i == 3 || i == 4 || i == 9 {
			pings = append(pings, frame...)
			continue
		}
		passed = append(passed, frame...)
	}
	return all, passed, pings
}

func TestPingsAreTakenOutWhereverTheWritesAreCut(t *testing.T) {
	all, passed, pings := conversation()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		var f spdyFrames
		var got, answered []byte
		for rest := all; len(rest) > 0; {
			n := min(1+random.IntN(1+int(seed)*7), len(rest))
			pass, asked := f.withoutPings(rest[:n])
			for _, part := range pass {
				got = append(got, part...)
			}
			answered, rest = append(answered, asked...), rest[n:]
		}
		if !bytes.Equal(got, passed) || !bytes.Equal(answered, pings) {
			t.Fatalf("seed %d: %d bytes pass, want %d; pings %x, want %x", seed, len(got), len(passed), answered, pings)
		}
		if !f.between() {
			t.Fatalf("seed %d: the last frame has not ended: %+v", seed, f)
		}
	}
}

func TestWhatIsNotSPDYPassesAsItIs(t *testing.T) {
	for name, head := range map[string]string{
		"a WebSocket":             "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
		"no upgrade":              "GET / HTTP/1.1\r\n\r\n",
		"a refusal":               "HTTP/1.1 403 Forbidden\r\nUpgrade: SPDY/3.1\r\n\r\n",
		"a head that is too long": "GET / HTTP/1.1\r\nX: " + string(bytes.Repeat([]byte("x"), longestHead)),
	} {
		all := append([]byte(head), ping(1)...)
		var f spdyFrames
		var got []byte
		for _, b := range all {
			pass, asked := f.withoutPings([]byte{b})
			if len(asked) != 0 {
				t.Errorf("%s: a ping was seen", name)
			}
			got = append(got, bytes.Join(pass, nil)...)
		}
		if !bytes.Equal(got, all) || f.between() {
			t.Errorf("%s: %q passes", name, got)
		}
	}
}

func FuzzEveryByteThatIsNoPingPasses(f *testing.F) {
	f.Add(bytes.Join([][]byte{[]byte(spdyRequest), ping(1), data(3, 20), ping(2), data(1, 0), ping(3)}, nil), 3) // short: it is made shorter for long
	f.Add([]byte(spdyRequest+"\x80\x03\x00\x06\x00\xff\xff\xff"), 1)
	f.Fuzz(func(t *testing.T, sent []byte, step int) {
		if step <= 0 {
			step = 1
		}
		var frames spdyFrames
		var got, pings []byte
		for rest := sent; len(rest) > 0; {
			n := min(step, len(rest))
			pass, asked := frames.withoutPings(rest[:n])
			got, pings, rest = append(got, bytes.Join(pass, nil)...), append(pings, asked...), rest[n:]
		}
		if len(got)+len(pings)+len(frames.kind) != len(sent) || len(pings)%pingFrame != 0 || len(frames.kind) >= pingFrame {
			t.Errorf("%d bytes passed, %d are of pings, %d are held back, of %d", len(got), len(pings), len(frames.kind), len(sent))
		}
	})
}

// waiting is how much lies in the buffers between two ends, unread: more than the
// reader's takes, and no more than any machine lets the writer's have.
const waiting = 128 << 10

// connected are the two ends of a connection.
func connected(t *testing.T) (accepted, dialled *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	there, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close(); here.Close() })
	return here.(*net.TCPConn), there.(*net.TCPConn)
}

// runtimeAndClient are the two ends of a connection that has upgraded.
func runtimeAndClient(t *testing.T, onEnd func()) (runtime *net.TCPConn, client net.Conn) {
	t.Helper()
	runtime, conn := connected(t)
	if err := conn.SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	client = answerPings(conn, onEnd)
	says(t, client, []byte(spdyRequest))
	hears(t, runtime, []byte(spdyRequest))
	says(t, runtime, []byte(spdyAnswer))
	hears(t, client, []byte(spdyAnswer))
	return runtime, client
}

func says(t *testing.T, c net.Conn, p []byte) {
	t.Helper()
	if n, err := c.Write(p); n != len(p) || err != nil {
		t.Fatalf("%d bytes of %d were written, %v", n, len(p), err)
	}
}

func hears(t *testing.T, c io.Reader, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes, %v, that begin with %x; want %d that begin with %x", n, err, got[:min(n, 32)], len(want), want[:min(len(want), 32)])
	}
}

func TestAPingIsAnsweredThoughTheRuntimeIsSilent(t *testing.T) {
	runtime, client := runtimeAndClient(t, func() {})
	answered := make(chan []byte, 1)
	go func() {
		got := make([]byte, 2*pingFrame)
		n, _ := io.ReadFull(client, got)
		answered <- got[:n]
	}()
	for _, id := range []uint32{1, 3} {
		says(t, client, ping(id))
	}
	select {
	case got := <-answered:
		if want := append(ping(1), ping(3)...); !bytes.Equal(got, want) {
			t.Errorf("answered %x, want %x", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("no answer")
	}
	says(t, client, data(1, 5))
	hears(t, runtime, data(1, 5)) // and the runtime has heard of no ping
	says(t, runtime, data(2, 9))
	hears(t, client, data(2, 9))
}

func TestAnAnswerStandsBetweenFrames(t *testing.T) {
	runtime, client := runtimeAndClient(t, func() {})
	frame := data(2, 100)
	says(t, runtime, frame[:50])
	hears(t, client, frame[:50])
	says(t, client, ping(1))
	says(t, runtime, frame[50:])
	hears(t, client, append(bytes.Clone(frame[50:]), ping(1)...))
}

func TestAFloodOfPingsHoldsLittle(t *testing.T) {
	runtime, client := runtimeAndClient(t, func() {})
	frame := data(2, 100)
	says(t, runtime, frame[:50])
	hears(t, client, frame[:50]) // no answer can stand here
	for id := uint32(1); id < 2000; id += 2 {
		says(t, client, ping(id))
	}
	if n := len(client.(*keptAlive).pongs); n != mostPongs {
		t.Errorf("%d bytes of answers are kept, want %d", n, mostPongs)
	}
	says(t, runtime, frame[50:])
	hears(t, client, frame[50:])
	for id := uint32(1); id < 2*mostPongs/pingFrame; id += 2 {
		hears(t, client, ping(id))
	}
	says(t, runtime, frame)
	hears(t, client, frame)
}

// A runtime sends all and closes; the client, who reads slowly, pings meanwhile.
func TestAPingAfterTheRuntimesEndLosesNothing(t *testing.T) {
	runtime, client := runtimeAndClient(t, func() {})
	if err := runtime.SetWriteBuffer(4 * waiting); err != nil {
		t.Fatal(err)
	}
	output := data(2, waiting)
	says(t, runtime, output)
	if err := runtime.Close(); err != nil {
		t.Fatal(err)
	}
	says(t, client, ping(1))
	hears(t, client, ping(1))
	hears(t, client, output[:len(output)-1])
	says(t, client, ping(3))
	hears(t, client, output[len(output)-1:])
}

func TestTheRuntimesGoodbyeIsToldWhereverTheReadsAreCut(t *testing.T) {
	goAway := []byte{0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 0}
	for _, step := range []int{1, 5, 1000} {
		told := 0
		runtime, client := runtimeAndClient(t, func() { told++ })
		all := append(data(2, 100), goAway...)
		says(t, runtime, all[:len(all)-len(goAway)])
		hears(t, client, all[:len(all)-len(goAway)])
		if told != 0 {
			t.Errorf("%d at a time: told before it was said", step)
		}
		for rest := goAway; len(rest) > 0; {
			n := min(step, len(rest))
			says(t, runtime, rest[:n])
			hears(t, client, rest[:n])
			rest = rest[n:]
		}
		if told != 1 {
			t.Errorf("%d at a time: told %d times", step, told)
		}
	}
}
