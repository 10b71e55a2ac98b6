package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/klog/v2"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/lifeline"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/uds"
)

// begin runs a daemon with parts and returns it, a connection, and stop, which
// returns what Run did.
func begin(t *testing.T, opts Options, parts ...func(context.Context) error) (*Daemon, *grpc.ClientConn, func() error) {
	t.Helper()
	opts.SocketDir = filepath.Join(t.TempDir(), "sockets")
	opts.Service, opts.NodeName = "stats", "node-1"
	d, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- d.Run(ctx, parts...) }()
	conn, err := d.Dial("stats")
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceValue(func() error { cancel(); return <-result })
	t.Cleanup(func() { _ = stop(); conn.Close() })
	return d, conn, stop
}

func wait(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestSecretsOfTheConfigurationAreForOperatorsOnly(t *testing.T) {
	document := func(text string) func() []byte { return func() []byte { return []byte(text) } }
	opts := Options{ConfigJSON: document("masked"), SecretConfigJSON: document("secret"), Users: rpc.Users{"gateway": 7, "probes": 8}}
	d, conn, _ := begin(t, opts, wait)
	want := "masked"
	if os.Geteuid() == 0 {
		want = "secret"
	}
	config, err := commonv1.NewCommonServiceClient(conn).GetConfig(within(t), &commonv1.GetConfigRequest{}, grpc.WaitForReady(true))
	if err != nil || string(config.GetKubeletConfigurationJson()) != want {
		t.Errorf("config %v, %v; want %s", config, err, want)
	}
	c := &common{daemon: d}
	for uid, want := range map[uint32]bool{0: true, 7: true, 8: false} {
		if got := c.operates(uds.Peer{UID: uid}); got != want {
			t.Errorf("uid %d operates: %v", uid, got)
		}
	}
	// A caller that is not known, as over a connection of no socket's.
	if unknown, err := c.GetConfig(t.Context(), nil); err != nil || string(unknown.GetKubeletConfigurationJson()) != "masked" {
		t.Errorf("config %v, %v", unknown, err)
	}
}

func TestAProcessSaysWhatItIsAndWhatItLacks(t *testing.T) {
	d, conn, stop := begin(t, Options{ConfigRuns: func() (uint64, string) { return 7, "sha256:x" }, ConfigJSON: func() []byte { return []byte(`{"port":1}`) }, ConfigWithoutEffect: func() []string { return []string{"x: 1 has no effect"} }}, wait)
	d.Health().Set("podsync", false, "no socket")
	c := commonv1.NewCommonServiceClient(conn)
	info, err := c.GetInfo(within(t), &commonv1.GetInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if info.GetService() != "stats" || info.GetNodeName() != "node-1" || int(info.GetPid()) != os.Getpid() ||
		info.GetEpoch() != d.Epoch() || info.GetBuild().GetProtocol() == 0 {
		t.Errorf("info %v", info)
	}
	if info.GetConfigGeneration() != 7 || info.GetConfigChecksum() != "sha256:x" {
		t.Errorf("info %v", info)
	}
	if deps := info.GetDependencies(); len(deps) != 1 || deps[0].GetReady() || deps[0].GetMessage() != "no socket" {
		t.Errorf("dependencies %v", deps)
	}
	config, err := c.GetConfig(within(t), &commonv1.GetConfigRequest{})
	if err != nil || string(config.GetKubeletConfigurationJson()) != `{"port":1}` || len(config.GetWithoutEffect()) != 1 {
		t.Errorf("config %v, %v", config, err)
	}
	health := healthgrpc.NewHealthClient(conn)
	for name, want := range map[string]healthgrpc.HealthCheckResponse_ServingStatus{
		"": healthgrpc.HealthCheckResponse_SERVING, "podsync": healthgrpc.HealthCheckResponse_NOT_SERVING,
		"stats": healthgrpc.HealthCheckResponse_NOT_SERVING,
	} {
		got, err := health.Check(within(t), &healthgrpc.HealthCheckRequest{Service: name})
		if err != nil || got.GetStatus() != want {
			t.Errorf("health of %q: %v, %v; want %v", name, got, err, want)
		}
	}
	if err := stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestMetricsOfEachRegistryAreServedByName(t *testing.T) {
	extra := prometheus.NewRegistry()
	for i := range 150 {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "probe_" + strings.Repeat("x", i+1)})
		extra.MustRegister(g)
	}
	_, conn, stop := begin(t, Options{ExtraRegistries: map[string]prometheus.Gatherer{"probes": extra}}, wait)
	c := commonv1.NewCommonServiceClient(conn)
	count := func(registry string) (families, messages int, err error) {
		s, err := c.GetMetrics(within(t), &commonv1.GetMetricsRequest{Registry: registry}, grpc.WaitForReady(true))
		for err == nil {
			var resp *commonv1.GetMetricsResponse
			if resp, err = s.Recv(); err == nil {
				families += len(resp.GetFamilies())
				messages++
			}
		}
		return families, messages, err
	}
	if f, _, err := count(""); err != io.EOF || f < 20 {
		t.Errorf("main registry: %d families, %v", f, err)
	}
	if f, m, err := count("probes"); err != io.EOF || f != 150 || m != 3 {
		t.Errorf("probes registry: %d families in %d messages, %v", f, m, err)
	}
	if _, _, err := count("nonsense"); !errors.Is(err, rpcerr.ErrNotFound) || !strings.Contains(err.Error(), "probes") {
		t.Errorf("unknown registry: %v", err)
	}
	stop()
}

func TestAPartThatEndsEarlyEndsTheProcessWithItsError(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		part func(context.Context) error
		want string
	}{
		"fails":   {func(context.Context) error { return boom }, "boom"},
		"returns": {func(context.Context) error { return nil }, "nobody asked it to stop"},
		"panics":  {func(context.Context) error { panic("argh") }, "panic: argh"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := New(Options{Service: "probes", SocketDir: filepath.Join(t.TempDir(), "s")})
			if err != nil {
				t.Fatal(err)
			}
			other := false
			err = d.Run(t.Context(), tc.part, func(ctx context.Context) error { <-ctx.Done(); other = true; return nil })
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "probes") {
				t.Fatalf("Run = %v, want %q", err, tc.want)
			}
			if !other {
				t.Fatal("the other part was not stopped first")
			}
		})
	}
}

func TestAStopEndsStreamsAndRemovesTheSocket(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	d, conn, stop := begin(t, Options{}, wait)
	s, err := healthgrpc.NewHealthClient(conn).Watch(context.Background(), &healthgrpc.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = s.Recv()
	}
	if !strings.Contains(err.Error(), "the process is stopping") {
		t.Errorf("the open stream held the stop up until it was cut: %v", err)
	}
	if _, err := os.Stat(d.SocketPath("stats")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket is left behind: %v", err)
	}
	conn.Close()
}

func TestReadinessIsToldToSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "100000")
	t.Setenv("WATCHDOG_PID", "")
	_, _, stop := begin(t, Options{}, wait)
	read := func() string {
		buf := make([]byte, 100)
		l.SetReadDeadline(time.Now().Add(30 * time.Second))
		n, err := l.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	if got := read(); got != "READY=1" {
		t.Errorf("first %q", got)
	}
	if got := read(); got != "WATCHDOG=1" {
		t.Errorf("then %q", got)
	}
	go stop()
	for got := read(); got != "STOPPING=1"; got = read() {
		if got != "WATCHDOG=1" {
			t.Fatalf("got %q", got)
		}
	}
}

func TestASupervisorIsToldThatTheProcessAnswers(t *testing.T) {
	hear, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hear.Close()
	// The process owns its end.
	fd, err := syscall.Dup(int(say.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	say.Close()
	t.Setenv(lifeline.Variable, lifeline.Value(fd, 100*time.Millisecond))
	_, _, stop := begin(t, Options{}, wait)
	defer stop()
	hear.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.ReadFull(hear, make([]byte, 3)); err != nil {
		t.Error(err)
	}
}

// The socket's file is polylet run's to make, before it starts the process anew.
func TestAProcessWhoseSocketWasRemovedEndsWhenASupervisorMakesIt(t *testing.T) {
	hear, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hear.Close()
	fd, err := syscall.Dup(int(say.Fd())) // the process owns its end
	if err != nil {
		t.Fatal(err)
	}
	say.Close()
	t.Setenv(lifeline.Variable, lifeline.Value(fd, 2*time.Second))
	ended := make(chan error, 1)
	d, conn, _ := begin(t, Options{}, func(ctx context.Context) error {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	})
	if _, err := commonv1.NewCommonServiceClient(conn).GetInfo(within(t), &commonv1.GetInfoRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.SocketPath("stats")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), d.SocketPath("stats")) || !strings.Contains(err.Error(), "removed") {
			t.Errorf("it ended with: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on, and nobody reaches it")
	}
}

func TestTheWatchdogSeesAServerThatDoesNotAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dead.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := checkSelf(t.Context(), path, 100*time.Millisecond); err == nil {
		t.Fatal("a socket that nobody accepts on passes")
	}
}

func TestJSONLogsHaveKubernetesKeysAndFollowTheVerbosity(t *testing.T) {
	var out bytes.Buffer
	if err := InitLogging(Logging{Format: "json", Verbosity: 1, Out: &out}); err != nil {
		t.Fatal(err)
	}
	defer func() { klog.ClearLogger(); InitLogging(Logging{}) }()
	log := klog.Background()
	log.V(2).Info("hidden")
	log.Info("shown", "pod", "ns/name")
	if previous, err := SetVerbosity(2); err != nil || previous != 1 {
		t.Fatalf("SetVerbosity = %d, %v", previous, err)
	}
	log.V(2).Info("now shown")
	got := out.String()
	if strings.Contains(got, "hidden") || !strings.Contains(got, `"msg":"shown"`) ||
		!strings.Contains(got, `"pod":"ns/name"`) || !strings.Contains(got, `"ts":`) || !strings.Contains(got, `"msg":"now shown"`) {
		t.Fatalf("log:\n%s", got)
	}
	if _, err := SetVerbosity(11); err != nil {
		t.Errorf("verbosity 11, which a kubelet takes: %v", err)
	}
	if _, err := SetVerbosity(-1); !errors.Is(err, rpcerr.ErrInvalid) {
		t.Errorf("verbosity -1: %v", err)
	}
	if err := InitLogging(Logging{Format: "xml"}); !errors.Is(err, rpcerr.ErrInvalid) || !strings.Contains(err.Error(), "text or json") {
		t.Errorf("format xml: %v", err)
	}
}

func TestMainTurnsErrorsIntoExitCodes(t *testing.T) {
	if code := Main(func(context.Context) error { return nil }); code != ExitOK {
		t.Errorf("clean: %d", code)
	}
	if code := Main(func(context.Context) error { return errors.New("no") }); code != ExitFailed {
		t.Errorf("failed: %d", code)
	}
}

func TestChecksOfTheProcessAreRunByName(t *testing.T) {
	opts := Options{Service: "stats", SocketDir: filepath.Join(t.TempDir(), "s")}
	d, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	d.AddCheck(Check{Name: "loop", Run: func(context.Context) error { return errors.New("stands still") }})
	c := &common{daemon: d}
	for _, tc := range []struct {
		names []string
		want  string
	}{
		{nil, "log=true loop=false:stands still"},
		{[]string{"loop"}, "loop=false:stands still"},
		{[]string{"log", "nosuch"}, "log=true"},
		{[]string{"nosuch"}, ""},
	} {
		resp, err := c.CheckHealth(within(t), &commonv1.CheckHealthRequest{Names: tc.names})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, check := range resp.GetChecks() {
			text := fmt.Sprintf("%s=%v", check.GetName(), check.GetHealthy())
			if check.GetMessage() != "" {
				text += ":" + check.GetMessage()
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%v: %q, want %q", tc.names, got, tc.want)
		}
	}
}

func TestProfilesAreThoseOfNetHTTPPprof(t *testing.T) {
	_, conn, stop := begin(t, Options{}, wait)
	c := commonv1.NewCommonServiceClient(conn)
	get := func(req *commonv1.GetProfileRequest) (contentType, body string, err error) {
		s, err := c.GetProfile(within(t), req, grpc.WaitForReady(true))
		for err == nil {
			var resp *commonv1.GetProfileResponse
			if resp, err = s.Recv(); err == nil {
				body += string(resp.GetData())
				if contentType == "" {
					contentType = resp.GetContentType()
				}
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return contentType, body, err
	}
	for _, tc := range []struct {
		req               *commonv1.GetProfileRequest
		contentType, body string
		err               error
	}{
		{&commonv1.GetProfileRequest{}, "text/html; charset=utf-8", "goroutine", nil},
		{&commonv1.GetProfileRequest{Name: "goroutine", Debug: 2}, "text/plain; charset=utf-8", "goroutine ", nil},
		{&commonv1.GetProfileRequest{Name: "heap", Gc: true}, "application/octet-stream", "\x1f\x8b", nil},
		{&commonv1.GetProfileRequest{Name: "profile", Seconds: 1}, "application/octet-stream", "\x1f\x8b", nil},
		{&commonv1.GetProfileRequest{Name: "cmdline"}, "text/plain; charset=utf-8", os.Args[0], nil},
		{&commonv1.GetProfileRequest{Name: "symbol", Symbols: "0x1"}, "text/plain; charset=utf-8", "num_symbols: 1", nil},
		{&commonv1.GetProfileRequest{Name: "nosuch"}, "", "", rpcerr.ErrNotFound},
		{&commonv1.GetProfileRequest{Name: "../heap"}, "", "", rpcerr.ErrNotFound},
		{&commonv1.GetProfileRequest{Name: "profile", Seconds: -1}, "", "", rpcerr.ErrInvalid},
		{&commonv1.GetProfileRequest{Name: "trace", Seconds: 3601}, "", "", rpcerr.ErrInvalid},
	} {
		contentType, body, err := get(tc.req)
		if !errors.Is(err, tc.err) || contentType != tc.contentType || !strings.Contains(body, tc.body) {
			t.Errorf("%v: %q, %d bytes, error %v; want %q with %q, error %v", tc.req, contentType, len(body), err, tc.contentType, tc.body, tc.err)
		}
	}
	stop()
}
