package handler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

func run(t *testing.T, h probe.Handler, edit ...func(*probe.Target)) probe.Answer {
	t.Helper()
	target := probe.Target{PodIP: "127.0.0.1", Timeout: 5 * time.Second, Handler: h}
	for _, f := range edit {
		f(&target)
	}
	return New(Config{UserAgent: "kube-probe/1.36"}, nil).Run(t.Context(), target)
}

func timeout(d time.Duration) func(*probe.Target) {
	return func(t *probe.Target) { t.Timeout = d }
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// closedPort returns a port on which nobody listens, nor can as long as the test
// runs.
func closedPort(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return bound.(*unix.SockaddrInet4).Port
}

func TestHTTPStatusDecidesTheVerdict(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch code, _ := strconv.Atoi(strings.Trim(r.URL.Path, "/")); code {
		case 301:
			http.Redirect(w, r, "/200", code)
		case 302:
			w.Header().Set("Location", "http://elsewhere.invalid/")
			w.WriteHeader(code)
			fmt.Fprint(w, "gone")
		case 307:
			http.Redirect(w, r, "/307", code)
		case 200:
			fmt.Fprint(w, "fine "+r.URL.RawQuery)
		default:
			w.WriteHeader(code)
		}
	}))
	defer server.Close()
	port := portOf(t, server.Listener.Addr().String())
	for _, c := range []struct {
		path    string
		verdict probe.Verdict
		message string
	}{
		{"/200?a=b", probe.Passed, "fine a=b"},
		{"200", probe.Passed, "fine "},
		{"/204", probe.Passed, ""},
		{"/304", probe.Warned, "Probe terminated redirects, Response body: "},
		{"/399", probe.Warned, "Probe terminated redirects, Response body: "},
		{"/400", probe.Failed, "HTTP probe failed with statuscode: 400"},
		{"/500", probe.Failed, "HTTP probe failed with statuscode: 500"},
		{"/301", probe.Passed, "fine "},
		{"/302", probe.Warned, "Probe terminated redirects, Response body: gone"},
		{"/307", probe.Failed, "Get \"/307\": stopped after 10 redirects"},
	} {
		got := run(t, probe.HTTPGet{Scheme: "HTTP", Port: port, Path: c.path})
		if got.Verdict != c.verdict || got.Message != c.message {
			t.Errorf("%s: %+v, want %v %q", c.path, got, c.verdict, c.message)
		}
	}
}

func TestHTTPSendsTheHeadersThatTheKubeletSends(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers []probe.Header
		want    map[string]string
	}{
		{"defaults", nil, map[string]string{"User-Agent": "kube-probe/1.36", "Accept": "*/*", "Accept-Encoding": "", "Connection": "close"}},
		{"the user's win", []probe.Header{{Name: "user-agent", Value: "me"}, {Name: "ACCEPT", Value: "text/plain"}}, map[string]string{"User-Agent": "me", "Accept": "text/plain"}},
		{"empty ones are removed", []probe.Header{{Name: "User-Agent"}, {Name: "Accept"}}, map[string]string{"User-Agent": "<none>", "Accept": "<none>"}},
		{"names may repeat", []probe.Header{{Name: "X-A", Value: "1"}, {Name: "X-A", Value: "2"}}, map[string]string{"X-A": "1,2"}},
		{"Host is honoured", []probe.Header{{Name: "Host", Value: "app.example"}}, map[string]string{"Host": "app.example"}},
	} {
		var got http.Header
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got = r.Header.Clone()
			got.Set("Host", r.Host)
		}))
		answer := run(t, probe.HTTPGet{Port: portOf(t, server.Listener.Addr().String()), Path: "/", Headers: c.headers})
		server.Close()
		if answer.Verdict != probe.Passed {
			t.Fatalf("%s: %+v", c.name, answer)
		}
		for name, want := range c.want {
			have := strings.Join(got.Values(name), ",")
			if _, sent := got[name]; want == "<none>" && sent || want != "<none>" && have != want {
				t.Errorf("%s: %s is %q, want %q", c.name, name, have, want)
			}
		}
	}
}

func TestHTTPSDoesNotVerifyTheCertificate(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	got := run(t, probe.HTTPGet{Scheme: "HTTPS", Port: portOf(t, server.Listener.Addr().String()), Path: "/"})
	if got.Message != "HTTP probe failed with statuscode: 404" {
		t.Errorf("%+v", got)
	}
}

// A server may speak nothing but HTTP/2 over TLS.
func TestHTTPSSpeaksHTTP2WithAServerThatDoes(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 {
			w.WriteHeader(http.StatusHTTPVersionNotSupported)
			return
		}
		fmt.Fprint(w, strings.Repeat("x", 1<<20))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for range 2 {
		got := run(t, probe.HTTPGet{Scheme: "HTTPS", Port: portOf(t, server.Listener.Addr().String()), Path: "/"})
		if got.Verdict != probe.Passed || len(got.Message) != bodyLimit {
			t.Errorf("%v with %d bytes, %.100s", got.Verdict, len(got.Message), got.Message)
		}
	}
}

func TestHTTPReadsTenKiBOfTheBodyAndKeepsNoConnection(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, strings.Repeat("x", 1<<20))
	}))
	defer server.Close()
	got := run(t, probe.HTTPGet{Port: portOf(t, server.Listener.Addr().String()), Path: "/"})
	if got.Verdict != probe.Passed || len(got.Message) != bodyLimit {
		t.Errorf("%v with %d bytes", got.Verdict, len(got.Message))
	}
}

func TestHTTPFailsWhenNobodyAnswers(t *testing.T) {
	port := closedPort(t)
	got := run(t, probe.HTTPGet{Port: port, Path: "/x"})
	want := fmt.Sprintf(`Get "http://127.0.0.1:%d/x": dial tcp 127.0.0.1:%d: connect: connection refused`, port, port)
	if got.Verdict != probe.Failed || got.Message != want {
		t.Errorf("%+v, want %q", got, want)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	got = run(t, probe.HTTPGet{Port: portOf(t, silent.Addr().String()), Path: "/"}, timeout(50*time.Millisecond))
	if got.Verdict != probe.Failed || !strings.Contains(got.Message, "Client.Timeout exceeded while awaiting headers") {
		t.Errorf("%+v", got)
	}
}

func TestTCPPassesWhenSomebodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := run(t, probe.TCPSocket{Port: portOf(t, l.Addr().String())}); got.Verdict != probe.Passed {
		t.Errorf("%+v", got)
	}
	port := closedPort(t)
	got := run(t, probe.TCPSocket{Host: "127.0.0.1", Port: port}, func(t *probe.Target) { t.PodIP = "192.0.2.1" })
	if want := fmt.Sprintf("dial tcp 127.0.0.1:%d: connect: connection refused", port); got != (probe.Answer{Verdict: probe.Failed, Message: want}) {
		t.Errorf("%+v, want %q", got, want)
	}
}

func TestAPortThatCannotBeResolvedIsAnErrorNotAFailure(t *testing.T) {
	for _, h := range []probe.Handler{
		probe.HTTPGet{PortName: "web"}, probe.TCPSocket{PortName: "web"}, probe.TCPSocket{Port: 70000}, probe.GRPC{}, nil,
	} {
		if got := run(t, h); got.Verdict != probe.Errored || got.Message == "" {
			t.Errorf("%#v: %+v", h, got)
		}
	}
}

func grpcServer(t *testing.T, register func(*grpc.Server)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return portOf(t, l.Addr().String())
}

func TestGRPCAsksTheHealthService(t *testing.T) {
	checker := health.NewServer()
	checker.SetServingStatus("sick", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	healthy := grpcServer(t, func(s *grpc.Server) { grpc_health_v1.RegisterHealthServer(s, checker) })
	bare := grpcServer(t, func(*grpc.Server) {})
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed := closedPort(t)
	for _, c := range []struct {
		name    string
		handler probe.GRPC
		verdict probe.Verdict
		message string
	}{
		{"serving", probe.GRPC{Port: healthy}, probe.Passed, "service healthy"},
		{"not serving", probe.GRPC{Port: healthy, Service: "sick"}, probe.Failed, `service unhealthy (responded with "NOT_SERVING")`},
		{"unknown service", probe.GRPC{Port: healthy, Service: "nobody"}, probe.Failed, "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
		{"no health service", probe.GRPC{Port: bare}, probe.Failed, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health"},
		{"refused", probe.GRPC{Port: closed}, probe.Failed, fmt.Sprintf(`timeout: failed to connect service "127.0.0.1:%d" within 1m0s: dial tcp 127.0.0.1:%d: connect: connection refused`, closed, closed)},
		{"silent", probe.GRPC{Port: portOf(t, silent.Addr().String())}, probe.Failed, "timeout: health rpc did not complete within 2s"},
	} {
		within := time.Minute
		if c.name == "silent" {
			within = 2 * time.Second
		}
		if got := run(t, c.handler, timeout(within)); got.Verdict != c.verdict || got.Message != c.message {
			t.Errorf("%s: %+v, want %v %q", c.name, got, c.verdict, c.message)
		}
	}
}

type commander func(Command) ([]byte, int, error)

func (c commander) RunCommand(_ context.Context, cmd Command) ([]byte, int, error) { return c(cmd) }

func TestExecJudgesTheExitCode(t *testing.T) {
	for _, c := range []struct {
		name   string
		output string
		code   int
		err    error
		want   probe.Answer
	}{
		{"zero", "ok\n", 0, nil, probe.Answer{Verdict: probe.Passed, Message: "ok\n"}},
		{"not zero", "cat: no such file\n", 1, nil, probe.Answer{Verdict: probe.Failed, Message: "cat: no such file\n"}},
		{"much output", strings.Repeat("x", 1<<20), 1, nil, probe.Answer{Verdict: probe.Failed, Message: strings.Repeat("x", bodyLimit)}},
		{"timeout", "", 0, fmt.Errorf("%w: rpc", ErrCommandTimeout), probe.Answer{Verdict: probe.Failed, Message: `command timed out: "cat /tmp/health" timed out after 1s`}},
		{"away", "", 0, fmt.Errorf("%w: podsync restarts", ErrAway), probe.Answer{Verdict: probe.Skipped, Message: "cannot be run now: podsync restarts"}},
		{"infrastructure", "", 0, errors.New("runtime broke"), probe.Answer{Verdict: probe.Errored, Message: "runtime broke"}},
	} {
		h := New(Config{}, commander(func(cmd Command) ([]byte, int, error) {
			if cmd.Timeout != time.Second || cmd.Target.ContainerID != "id" || len(cmd.Args) != 2 {
				t.Errorf("%s: command %+v", c.name, cmd)
			}
			return []byte(c.output), c.code, c.err
		}))
		got := h.Run(t.Context(), probe.Target{ContainerID: "id", Timeout: time.Second, Handler: probe.Exec{Command: []string{"cat", "/tmp/health"}}})
		if got != c.want {
			t.Errorf("%s: %.80v, want %.80v", c.name, got, c.want)
		}
	}
}

func TestIPv6HostsAndOddPathsMakeGoodURLs(t *testing.T) {
	h := New(Config{}, nil)
	for path, want := range map[string]string{"/a b": "http://[fd00::1]:80/a%20b", "/%zz": "http://[fd00::1]:80/%25zz", "": "http://[fd00::1]:80", "/a?b=c%20d#e": "http://[fd00::1]:80/a?b=c%20d#e"} {
		req, wrong := h.request(t.Context(), probe.Target{PodIP: "fd00::1"}, probe.HTTPGet{Port: 80, Path: path})
		if wrong != "" {
			t.Errorf("%q: %s", path, wrong)
			continue
		}
		if got := req.URL.String(); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
		if _, err := url.Parse(req.URL.String()); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}
