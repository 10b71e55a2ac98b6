package handler

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/testkit/kernelconns"
	"github.com/polylet/polylet/services/probes/internal/probe"
)

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
	end := time.Now().Add(50 * time.Second)
	for kernelconns.To(t, port) {
		if time.Now().After(end) {
			t.Fatal("50 seconds later there are connections")
		}
		time.Sleep(50 * time.Millisecond)
	}
}
