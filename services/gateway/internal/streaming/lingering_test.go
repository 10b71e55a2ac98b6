package streaming

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// A client's keepalive meets a session that has ended while the client still
// reads what it was told.
func TestAClientThatSpeaksAfterTheEndGetsTheWholeOutput(t *testing.T) {
	const size = waiting
	for name, encrypted := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			closed := make(chan error, 1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				e := &ending{}
				w, _, cancel := e.watch(w, r)
				defer cancel()
				conn, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					_, err = conn.Write(make([]byte, size))
				}
				if err == nil {
					err = conn.Close()
				}
				closed <- err
			}))
			server.Config.ConnState = func(c net.Conn, state http.ConnState) {
				if state == http.StateNew {
					if t, ok := c.(*tls.Conn); ok {
						c = t.NetConn()
					}
					_ = c.(*net.TCPConn).SetWriteBuffer(4 * size) // all of it waits there
				}
			}
			start := server.Start
			if encrypted {
				start = server.StartTLS
			}
			start()
			defer server.Close()
			var client net.Conn
			client, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if err := client.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
				t.Fatal(err)
			}
			if encrypted {
				client = tls.Client(client, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test's own
			}
			if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if err := <-closed; err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(client, "ping"); err != nil {
				t.Fatal(err)
			}
			if err := client.SetReadDeadline(time.Now().Add(lingerFor / 2)); err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, client)
			if n != size || err != nil {
				t.Errorf("%d bytes of %d were read, %v", n, size, err)
			}
		})
	}
}

// A client that was told the end closes without seeing it.
func TestTheEndIsNotSaidWhileAClientThatKnowsItMayStillRead(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout, reads time.Duration
		want           error
	}{
		"it knows":         {time.Hour, 200 * time.Millisecond, os.ErrDeadlineExceeded},
		"it does not":      {0, time.Minute, io.EOF},
		"it takes forever": {100 * time.Millisecond, time.Minute, io.EOF},
	} {
		ours, client := connected(t)
		if err := linger(ours, tc.timeout); err != nil {
			t.Fatal(err)
		}
		if err := client.SetReadDeadline(time.Now().Add(tc.reads)); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, tc.want) {
			t.Errorf("%s: it reads %v, want %v", name, err, tc.want)
		}
	}
}

func TestAConnectionThatCannotSayItsEndIsClosed(t *testing.T) {
	ours, theirs := net.Pipe()
	if err := linger(ours, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the other side reads %v", err)
	}
}
