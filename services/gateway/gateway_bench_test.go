package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
)

// fetch reads a path to its end and returns how many bytes there were.
func fetch(t testing.TB, client *http.Client, target string) int64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer admin-token")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%s: %s after %d bytes, %v", target, res.Status, n, err)
	}
	return n
}

// cpu reports the processor time of both ends, which says more than the clock
// on a machine that does something else too.
func cpu(b *testing.B) func() {
	now := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begin := now()
	return func() { b.ReportMetric(float64((now()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op") }
}

// logMemory bounds what both ends of the test hold of a log, however long: the
// windows and buffers of two connections.
const logMemory = 32 << 20

func TestALargeLogIsPassedOnInConstantMemory(t *testing.T) {
	h := newHouse(t)
	h.fake.logBytes = 256 << 20
	base := "https://" + h.start(t, nil).Addresses()["secure"]
	client := httpClient(t)
	client.Timeout = 5 * time.Minute
	fetch(t, client, base+"/pods") // connections are made
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // No machine has 8 EiB.
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/containerLogs/ns/p/c", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer admin-token")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	// What both ends hold in the middle of the log, which is looked at often.
	before, held, read := live(), int64(0), int64(0)
	for err == nil {
		var n int64
		n, err = io.CopyN(io.Discard, res.Body, h.fake.logBytes/16)
		read += n
		held = max(held, live()-before)
	}
	if !errors.Is(err, io.EOF) || read != h.fake.logBytes {
		t.Errorf("%d bytes came of %d, %v", read, h.fake.logBytes, err)
	}
	if held > logMemory {
		t.Errorf("%d MiB are held for a log of %d MiB, want at most %d", held>>20, h.fake.logBytes>>20, logMemory>>20)
	}
}

func BenchmarkLogOf1GiB(b *testing.B) {
	h := newHouse(b)
	h.fake.logBytes = 1 << 30
	base := "https://" + h.start(b, nil).Addresses()["secure"]
	for name, http2 := range map[string]bool{"HTTP2": true, "HTTP1": false} {
		client := httpClient(b)
		client.Timeout = 0
		client.Transport.(*http.Transport).ForceAttemptHTTP2 = http2 //nolint:forcetypeassert // httpClient made it
		b.Run(name, func(b *testing.B) {
			b.SetBytes(h.fake.logBytes)
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				fetch(b, client, base+"/containerLogs/ns/p/c")
			}
		})
	}
}

func BenchmarkDocuments(b *testing.B) {
	h := newHouse(b)
	addresses := h.start(b, nil).Addresses()
	for _, pods := range []int{10, 110, 500} {
		h.fake.setPods(b, pods)
		h.numbers.pods.Store(int64(pods))
		for _, path := range []string{"/pods", "/stats/summary", "/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes", "/runningpods/"} {
			base := "http://" + addresses["read-only"]
			if path == "/runningpods/" { // only the secure port has it
				base = "https://" + addresses["secure"]
			}
			b.Run(fmt.Sprintf("%s/%d", strings.Trim(path, "/"), pods), func(b *testing.B) {
				client := httpClient(b)
				b.ReportAllocs()
				defer cpu(b)()
				for b.Loop() {
					b.SetBytes(fetch(b, client, base+path))
				}
			})
		}
	}
}

func BenchmarkExec(b *testing.B) {
	h := newHouse(b)
	s := h.start(b, nil)
	query := url.Values{"command": {"true"}, "output": {"1"}}
	for name, executor := range executors(b, sessionURL(s, "/exec/ns/p/c", query), "admin-token") {
		b.Run("roundtrip/"+name, func(b *testing.B) {
			defer cpu(b)()
			for b.Loop() {
				if err := executor.StreamWithContext(b.Context(), remotecommand.StreamOptions{Stdout: io.Discard}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	query = url.Values{"command": {"cat"}, "input": {"1"}, "output": {"1"}}
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	for name, executor := range executors(b, sessionURL(s, "/exec/ns/p/c", query), "admin-token") {
		b.Run("cat/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(payload)))
			defer cpu(b)()
			for b.Loop() {
				if err := executor.StreamWithContext(b.Context(), remotecommand.StreamOptions{Stdin: bytes.NewReader(payload), Stdout: io.Discard}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPortForward(b *testing.B) {
	h := newHouse(b)
	s := h.start(b, nil)
	u := sessionURL(s, "/portForward/ns/p", nil)
	transport, upgrader, err := spdy.RoundTripperFor(restConfig("admin-token"))
	if err != nil {
		b.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(u, restConfig("admin-token"))
	if err != nil {
		b.Fatal(err)
	}
	viaSPDY := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	b.Run("SPDY", func(b *testing.B) {
		forwarded(b, func(stop, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.NewOnAddresses(viaSPDY, []string{"127.0.0.1"}, []string{"0:81"}, stop, ready, io.Discard, io.Discard)
		})
	})
	b.Run("WebSocket", func(b *testing.B) {
		forwarded(b, func(stop, ready chan struct{}) (*portforward.PortForwarder, error) {
			return portforward.NewOnAddresses(tunnel, []string{"127.0.0.1"}, []string{"0:81"}, stop, ready, io.Discard, io.Discard)
		})
	})
}

// forwarded reads what port 81 sends, again and again.
func forwarded(b *testing.B, open func(stop, ready chan struct{}) (*portforward.PortForwarder, error)) {
	b.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := open(stop, ready)
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	defer func() {
		close(stop)
		if err := <-done; err != nil {
			b.Error(err)
		}
	}()
	<-ready
	ports, err := f.GetPorts()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(forwardedBytes)
	var d net.Dialer
	defer cpu(b)()
	for b.Loop() {
		conn, err := d.DialContext(b.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := fmt.Fprint(conn, "ping"); err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, conn)
		if err != nil || n != forwardedBytes {
			b.Fatalf("%d bytes, %v", n, err)
		}
		conn.Close()
	}
}
