package handler

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// BenchmarkHTTPGet times one probe; the server's part is in the figure.
func BenchmarkHTTPGet(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	benchmark(b, probe.HTTPGet{Port: server.Listener.Addr().(*net.TCPAddr).Port, Path: "/"})
}

// BenchmarkTCPSocket times one connection.
func BenchmarkTCPSocket(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	benchmark(b, probe.TCPSocket{Port: l.Addr().(*net.TCPAddr).Port})
}

func benchmark(b *testing.B, h probe.Handler) {
	handlers := New(Config{UserAgent: "kube-probe/1.36"}, nil)
	target := probe.Target{PodIP: "127.0.0.1", Timeout: time.Second, Handler: h}
	b.ReportAllocs()
	for b.Loop() {
		if a := handlers.Run(b.Context(), target); a.Verdict != probe.Passed {
			b.Fatal(a)
		}
	}
}
