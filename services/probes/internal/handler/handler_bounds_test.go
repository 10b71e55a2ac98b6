package handler

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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

// stalling takes a request of each connection, sends begin, then text again and again up
// to a size, and then nothing more until the test ends.
func stalling(t *testing.T, begin, text string, size int) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
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
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				_, _ = io.WriteString(conn, begin)
				_, _ = conn.Write(bytes.Repeat([]byte(text), size/len(text)))
				_, _ = io.Copy(io.Discard, conn) // until the probe leaves
			})
		}
	})
	return portOf(t, l.Addr().String())
}

func TestAServerThatSendsEndlessHeadersCostsLittle(t *testing.T) {
	// Less than the 10 MiB that net/http takes when it is told no other number.
	port := stalling(t, "HTTP/1.1 200 OK\r\n", "X-Long: "+strings.Repeat("x", 1000)+"\r\n", 9<<20)
	began := time.Now()
	got := run(t, probe.HTTPGet{Scheme: "HTTP", Port: port, Path: "/"}, timeout(time.Minute))
	if got.Verdict != probe.Failed || !strings.Contains(got.Message, "headers exceeded") || time.Since(began) > 30*time.Second {
		t.Errorf("%+v after %s", got, time.Since(began))
	}
}

func TestAProbesAnswerIsHeldNoLargerThanItIsShown(t *testing.T) {
	port := stalling(t, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", strings.Repeat("x", 1000), 4<<20)
	began := time.Now()
	got := run(t, probe.HTTPGet{Scheme: "HTTP", Port: port, Path: "/"}, timeout(time.Minute))
	if got.Verdict != probe.Passed || len(got.Message) != bodyLimit || time.Since(began) > 30*time.Second {
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

// TestOfAnAttemptThatIsOverNoConnectionIsLeft: the server accepts, and says nothing.
func TestOfAnAttemptThatIsOverNoConnectionIsLeft(t *testing.T) {
	for _, scheme := range []string{"HTTP", "HTTPS"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		left := make(chan error, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
				_, err = io.Copy(io.Discard, conn) // nil at its end
				_ = conn.Close()
			}
			left <- err
		}()
		got := run(t, probe.HTTPGet{Scheme: scheme, Port: portOf(t, l.Addr().String()), Path: "/"}, timeout(200*time.Millisecond))
		if got.Verdict != probe.Failed || !strings.Contains(got.Message, "Client.Timeout exceeded") {
			t.Errorf("%s: %+v", scheme, got)
		}
		l.Close() // a busy machine may not have come to ask within that time
		var slow net.Error
		if err := <-left; errors.As(err, &slow) && slow.Timeout() {
			t.Errorf("%s: 30 seconds later the connection is open", scheme)
		}
	}
}

// TestAServerMayShowManyCertificates: some serve the authorities of a whole system with
// their own, and the kubelet's probes pass.
func TestAServerMayShowManyCertificates(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	chain := &server.TLS.Certificates[0]
	for leaf := chain.Certificate[0]; len(chain.Certificate) < 200; {
		chain.Certificate = append(chain.Certificate, leaf)
	}
	got := run(t, probe.HTTPGet{Scheme: "HTTPS", Port: portOf(t, server.Listener.Addr().String()), Path: "/"})
	if got.Verdict != probe.Passed {
		t.Errorf("%+v", got)
	}
}

// withHeader answers each request with a header so long, over HTTP/2 where it may; the
// answer ends when end is closed.
func withHeader(t *testing.T, scheme string, long int, end <-chan struct{}) (port int) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		const each = 1 << 10
		w.Header().Set("Content-Security-Policy", strings.Repeat("x", long/2))
		for range long / 2 / each {
			w.Header().Add("Set-Cookie", strings.Repeat("x", each))
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-end
	}))
	server.EnableHTTP2 = true
	if scheme == "HTTPS" {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return portOf(t, server.Listener.Addr().String())
}

func TestALongHeaderFailsNoProbe(t *testing.T) {
	end := make(chan struct{})
	close(end)
	for long, want := range map[int]probe.Verdict{1 << 10: probe.Passed, 24 << 10: probe.Passed, 100 << 10: probe.Passed, 600 << 10: probe.Failed} {
		for _, scheme := range []string{"HTTP", "HTTPS"} {
			port := withHeader(t, scheme, long, end)
			if got := run(t, probe.HTTPGet{Scheme: scheme, Port: port, Path: "/"}); got.Verdict != want {
				t.Errorf("%d KiB over %s: %v %.300q", long>>10, scheme, got.Verdict, got.Message)
			}
		}
	}
}

// TestAPathDoesNotSayThatAHeaderIsLong: errors of net/http have the whole URL.
func TestAPathDoesNotSayThatAHeaderIsLong(t *testing.T) {
	for _, text := range tooLong {
		if longHeader(&url.Error{Op: "Get", URL: "http://127.0.0.1/" + text, Err: io.EOF}) {
			t.Errorf("of a server that sends nothing, asked for %q", text)
		}
		if !longHeader(&url.Error{Op: "Get", URL: "http://127.0.0.1/", Err: errors.New(text)}) {
			t.Errorf("%q is not seen", text)
		}
	}
}

// TestOfLongHeadersFewAreHeld: those of one namespace, whose servers keep the probes
// waiting for a body, fail no probe of another, and none of their own.
func TestOfLongHeadersFewAreHeld(t *testing.T) {
	end := make(chan struct{})
	stuck := withHeader(t, "HTTP", 100<<10, end)
	handlers := New(Config{}, nil)
	ask := func(namespace string, port int) probe.Answer {
		return handlers.Run(t.Context(), probe.Target{Namespace: namespace, PodIP: "127.0.0.1", Timeout: 20 * time.Second, Handler: probe.HTTPGet{Port: port}})
	}
	answers := make(chan probe.Answer, 2*mostLongOfOne)
	for range cap(answers) {
		go func() { answers <- ask("a", stuck) }()
	}
	for range cap(answers) - mostLongOfOne {
		if got := <-answers; got.Verdict != probe.Errored {
			t.Errorf("one too many: %+v", got)
		}
	}
	ended := make(chan struct{})
	close(ended)
	if got := ask("b", withHeader(t, "HTTP", 100<<10, ended)); got.Verdict != probe.Passed {
		t.Errorf("of another namespace: %+v", got)
	}
	close(end)
	for range mostLongOfOne {
		if got := <-answers; got.Verdict != probe.Passed {
			t.Errorf("one that has a place: %+v", got)
		}
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

// TestAServerThatAsksAndNeverReadsKeepsNoConnection: net/http writes each answer to a PING
// before it reads on, and closes an HTTP/2 connection only when it could write that the
// request is over.
func TestAServerThatAsksAndNeverReadsKeepsNoConnection(t *testing.T) {
	certificate := httptest.NewTLSServer(nil)
	certificate.Close()
	config := &tls.Config{Certificates: certificate.TLS.Certificates, NextProtos: []string{"h2"}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	over := make(chan struct{})
	left := make(chan error, 1)
	go func() {
		left <- func() error {
			raw, err := l.Accept()
			if err != nil {
				return err
			}
			defer raw.Close()
			conn := tls.Server(raw, config)
			if err := conn.Handshake(); err != nil {
				return err
			}
			const settings, ping = "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping"
			if _, err := io.WriteString(conn, settings); err != nil {
				return err
			}
			pings := []byte(strings.Repeat(ping, 500))
			_ = raw.SetWriteDeadline(time.Now().Add(time.Second))
			for err == nil { // until nothing more goes
				_, err = conn.Write(pings)
			}
			<-over
			_ = raw.SetWriteDeadline(time.Now().Add(30 * time.Second))
			for err = nil; err == nil; {
				_, err = raw.Write(pings)
			}
			return err
		}()
	}()
	handlers := New(Config{}, nil)
	handlers.transport = newTransport(1 << 30) // it is not over for what has come: see TestAServerThatAsksWithoutEndIsSoonDoneWith
	got := handlers.Run(t.Context(), probe.Target{
		PodIP: "127.0.0.1", Timeout: 3 * time.Second, Handler: probe.HTTPGet{Scheme: "HTTPS", Port: portOf(t, l.Addr().String()), Path: "/"},
	})
	close(over)
	if got.Verdict != probe.Failed || !strings.Contains(got.Message, "Client.Timeout exceeded") {
		t.Errorf("%+v", got)
	}
	l.Close() // a busy machine may not have come to ask within that time
	var slow net.Error
	if err := <-left; errors.As(err, &slow) && slow.Timeout() {
		t.Errorf("30 seconds later the connection is open: %v", err)
	}
}
