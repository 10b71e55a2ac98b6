package kernelconns

import (
	"net"
	"testing"
)

func TestOnlyConnectionsToThePortCount(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is one of TCP
	if To(t, port) {
		t.Error("a listener counts as a connection to it")
	}
	conn, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if !To(t, port) {
		t.Error("a connection does not count")
	}
}
