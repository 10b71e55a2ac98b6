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

// inKernel says whether the kernel has a connection from a port of loopback.
func inKernel(t *testing.T, port int) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(table), fmt.Sprintf(": 0100007F:%04X ", port))
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
			port := conn.LocalAddr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is one of TCP
			if sends {
				_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				if _, err := conn.Write(make([]byte, 16<<20)); err == nil {
					t.Fatal("all of it was sent")
				}
			}
			if !inKernel(t, port) {
				t.Fatal("the connection is not found among the kernel's")
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			end := time.Now().Add(30 * time.Second) // the kernel has 60 s and more
			for inKernel(t, port) {
				if time.Now().After(end) {
					t.Fatal("it is there still")
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Logf("it was there for %s", time.Until(end)-30*time.Second)
		})
	}
}
