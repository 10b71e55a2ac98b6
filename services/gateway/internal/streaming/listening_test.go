package streaming

import (
	"bytes"
	"io"
	"net"
	"testing"
)

func TestWhatTheRuntimeSaidLastIsReadThoughItHearsNothingAnyMore(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	last := bytes.Repeat([]byte("0123456789abcdef"), 2<<10)
	closed := make(chan error, 1)
	go func() {
		runtime, err := listener.Accept()
		if err == nil {
			_, err = runtime.Read(make([]byte, 1)) // the second byte stays unread: to close is to reset
		}
		if err == nil {
			_, err = runtime.Write(last)
		}
		if err == nil {
			err = runtime.Close()
		}
		closed <- err
	}()
	conn, err := transport(func() {}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("ab")); err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if n, err := conn.Write([]byte("cd")); n != 2 || err != nil {
			t.Errorf("a write to a runtime that has closed says %d, %v; the proxies give up reading then", n, err)
		}
	}
	got, _ := io.ReadAll(conn) // the end may be a reset
	if !bytes.Equal(got, last) {
		t.Errorf("%d bytes were read of the %d that the runtime wrote", len(got), len(last))
	}
}

func TestAConnectionThatWasClosedHereCannotBeWrittenTo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := transport(func() {}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := conn.Write([]byte("x")); err == nil {
		t.Error("a write to a connection that we have closed succeeds")
	}
}
