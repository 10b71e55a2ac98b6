package handler

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// stalling takes a request, sends begin, then text again and again up to a size, and then
// nothing more until the test ends.
func stalling(t *testing.T, begin, text string, size int) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, begin)
		_, _ = conn.Write(bytes.Repeat([]byte(text), size/len(text)))
		_, _ = io.Copy(io.Discard, conn) // until the probe leaves
	}()
	return portOf(t, l.Addr().String())
}

func TestAServerThatSendsEndlessHeadersCostsLittle(t *testing.T) {
	// Less than the 10 MiB that net/http takes when it is told no other number.
	port := stalling(t, "HTTP/1.1 200 OK\r\n", "X-Long: "+strings.Repeat("x", 1000)+"\r\n", 9<<20)
	began := time.Now()
	got := run(t, probe.HTTPGet{Scheme: "HTTP", Port: port, Path: "/"}, timeout(20*time.Second))
	if got.Verdict != probe.Failed || !strings.Contains(got.Message, "headers exceeded") || time.Since(began) > 10*time.Second {
		t.Errorf("%+v after %s", got, time.Since(began))
	}
}

func TestAProbesAnswerIsHeldNoLargerThanItIsShown(t *testing.T) {
	port := stalling(t, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", strings.Repeat("x", 1000), 4<<20)
	began := time.Now()
	got := run(t, probe.HTTPGet{Scheme: "HTTP", Port: port, Path: "/"}, timeout(20*time.Second))
	if got.Verdict != probe.Passed || len(got.Message) != bodyLimit || time.Since(began) > 10*time.Second {
		t.Errorf("%v with %d bytes after %s", got.Verdict, len(got.Message), time.Since(began))
	}
}

// TestHeadersOfAFewLettersTakeLittle: a header of 64 KiB of those is a megabyte here, and
// is held until its body has come, which has a day.
func TestHeadersOfAFewLettersTakeLittle(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	many := strings.Builder{}
	for n := 0; many.Len() < 60<<10; n++ {
		fmt.Fprintf(&many, "%x:\r\n", n)
	}
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	t.Cleanup(func() { l.Close() })
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n"+many.String()+"\r\n")
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const probes, each = 50, 400 << 10
	handlers := New(Config{}, nil)
	target := probe.Target{PodIP: "127.0.0.1", Timeout: 5 * time.Second, Handler: probe.HTTPGet{Port: portOf(t, l.Addr().String())}}
	before := heap()
	for range probes {
		group.Go(func() { handlers.Run(t.Context(), target) })
	}
	time.Sleep(2 * time.Second)
	if grown := heap() - before; grown > probes*each {
		t.Errorf("a probe holds %d KiB", grown/probes>>10)
	}
}

// TestOfAServersCertificatesFewAreRead: those of 256 probes that one namespace may have in
// flight were more memory than this process may have.
func TestOfAServersCertificatesFewAreRead(t *testing.T) {
	for certificates, want := range map[int]probe.Verdict{10: probe.Passed, 11: probe.Failed} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		chain := &server.TLS.Certificates[0]
		for leaf := chain.Certificate[0]; len(chain.Certificate) < certificates; {
			chain.Certificate = append(chain.Certificate, leaf)
		}
		got := run(t, probe.HTTPGet{Scheme: "HTTPS", Port: portOf(t, server.Listener.Addr().String()), Path: "/"})
		if got.Verdict != want {
			t.Errorf("%d certificates: %+v", certificates, got)
		}
		server.Close()
	}
}

// talkative answers health checks with more than is asked for.
type talkative struct {
	grpc_health_v1.UnimplementedHealthServer
	header, message int
}

func (s talkative) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if s.header > 0 {
		if err := grpc.SetHeader(ctx, metadata.Pairs("x-long", strings.Repeat("x", s.header))); err != nil {
			return nil, err
		}
	}
	answer := &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}
	// A field that nobody knows, which a decoder keeps.
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, s.message))
	if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(unknown, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

func TestAGRPCServerThatTalksTooMuchFails(t *testing.T) {
	for want, s := range map[string]talkative{
		"service healthy":         {header: 1 << 10, message: 1 << 10},
		"larger than max":         {message: 3 << 20},
		"health rpc probe failed": {header: 1 << 20},
	} {
		port := grpcServer(t, func(srv *grpc.Server) { grpc_health_v1.RegisterHealthServer(srv, s) })
		got := run(t, probe.GRPC{Port: port})
		if !strings.Contains(got.Message, want) || (got.Verdict == probe.Passed) != (want == "service healthy") {
			t.Errorf("%+v: %v %.200q, want %q", fmt.Sprint(s.header, s.message), got.Verdict, got.Message, want)
		}
	}
}
