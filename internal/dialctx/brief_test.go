package dialctx

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silent is a server that takes connections, and neither reads nor closes them.
func silent(t *testing.T) string {
	t.Helper()
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
	}}
	l, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
		}
	}()
	return l.Addr().String()
}

// long is less than the kernel has of its own for what was closed, a minute, and more than
// it takes on a busy machine: beside a second there is how long an answer may take there.
const long = 50 * time.Second

// inKernel says whether the kernel has a connection between two ports of loopback.
func inKernel(t *testing.T, from, to net.Addr) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	port := func(of net.Addr) int { return of.(*net.TCPAddr).Port } //nolint:forcetypeassert // it is one of TCP
	return strings.Contains(string(table), fmt.Sprintf(": 0100007F:%04X 0100007F:%04X ", port(from), port(to)))
}

func TestOfAConnectionThatWasClosedNothingIsLeftWhateverTheServerDoes(t *testing.T) {
	for name, sends := range map[string]bool{"it does not close": false, "it does not read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d net.Dialer
			conn, err := Brief(d.DialContext)(t.Context(), "tcp", silent(t))
			if err != nil {
				t.Fatal(err)
			}
			from, to := conn.LocalAddr(), conn.RemoteAddr()
			if sends {
				_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				if _, err := conn.Write(make([]byte, 16<<20)); err == nil {
					t.Fatal("all of it was sent")
				}
			}
			if !inKernel(t, from, to) {
				t.Fatal("the connection is not found among the kernel's")
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			end := time.Now().Add(long)
			for inKernel(t, from, to) {
				if time.Now().After(end) {
					t.Fatal("it is there still")
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Logf("it was there for %s", long-time.Until(end))
		})
	}
}
