package handler

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// kept says whether the kernel has connections to a port of loopback, also those that
// nobody holds any more.
func kept(t *testing.T, port int) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == fmt.Sprintf("0100007F:%04X", port) {
			return true
		}
	}
	return false
}

// TestOfAServerThatClosesNothingTheKernelKeepsNothing: of each attempt there would be a
// connection in the kernel for another minute, and who has many probes made of such servers
// takes what the node has for all that nobody holds any more.
func TestOfAServerThatClosesNothingTheKernelKeepsNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go func() { // who answers what was not asked is none that a probe passes
				if n, _ := conn.Read(make([]byte, 4096)); n > 0 {
					_, _ = fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}()
		}
	}()
	port := portOf(t, l.Addr().String())
	if got := run(t, probe.TCPSocket{Port: port}); got.Verdict != probe.Passed {
		t.Fatal(got)
	}
	if got := run(t, probe.HTTPGet{Port: port, Path: "/"}); got.Verdict != probe.Passed {
		t.Fatal(got)
	}
	end := time.Now().Add(20 * time.Second)
	for kept(t, port) {
		if time.Now().After(end) {
			t.Fatal("20 seconds later there are connections")
		}
		time.Sleep(50 * time.Millisecond)
	}
}
