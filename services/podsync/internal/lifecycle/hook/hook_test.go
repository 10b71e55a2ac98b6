package hook

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

type execs struct {
	resp *runtimeapi.ExecSyncResponse
	err  error
}

func (e execs) ExecSync(context.Context, string, []string, time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	return e.resp, e.err
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(code int) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("x")), Header: http.Header{}}
}

func TestExecHooks(t *testing.T) {
	h := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"a"}}}
	target := Target{Container: &v1.Container{Name: "c"}}
	for name, tc := range map[string]struct {
		execs execs
		want  string
	}{
		"success":         {execs{resp: &runtimeapi.ExecSyncResponse{}}, ""},
		"exit code":       {execs{resp: &runtimeapi.ExecSyncResponse{ExitCode: 3, Stderr: []byte("no\n")}}, `the hook's command exited with 3`},
		"no text":         {execs{resp: &runtimeapi.ExecSyncResponse{ExitCode: 1, Stderr: []byte("\xff!")}}, `the hook's command exited with 1`},
		"runtime failure": {execs{err: status.Error(codes.DeadlineExceeded, "a: gone")}, `the hook's command could not be run in container c: DeadlineExceeded`},
	} {
		err := New(Deps{Exec: tc.execs}).Run(t.Context(), target, h)
		if got := text(err); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestWhatAHookRunsAndAsksForIsInNoError(t *testing.T) {
	const secret = "hunter2"
	target := Target{PodIP: "10.0.0.1", Container: &v1.Container{Name: "c"}, ContainerID: "id"}
	refused := trip(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
	for name, tc := range map[string]struct {
		deps  Deps
		hook  v1.LifecycleHandler
		whole string
	}{
		"arguments": {Deps{Exec: execs{err: errors.New("gone")}}, v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"a", secret}}}, "hunter2"},
		"output": {
			Deps{Exec: execs{resp: &runtimeapi.ExecSyncResponse{ExitCode: 1, Stdout: []byte(secret)}}},
			v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"a"}}}, `exited with 1: hunter2`,
		},
		"query": {
			Deps{Transport: refused}, v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/x?token=" + secret, Port: intstr.FromInt32(80)}},
			"token=hunter2",
		},
	} {
		var log bytes.Buffer
		config := textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(4))
		err := New(tc.deps).Run(klog.NewContext(t.Context(), textlogger.NewLogger(config)), target, &tc.hook)
		if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "the hook's ") {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(log.String(), tc.whole) {
			t.Errorf("%s: the log has %q", name, log.String())
		}
	}
}

func TestAnyAnswerToAnHTTPHookIsSuccess(t *testing.T) {
	var got *http.Request
	r := New(Deps{Transport: trip(func(req *http.Request) (*http.Response, error) { got = req; return answer(500), nil })})
	target := Target{PodIP: "fd00::1", Container: &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 8080}}}}
	h := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
		Path: "bye?x=1", Port: intstr.FromString("web"), HTTPHeaders: []v1.HTTPHeader{{Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}},
	}}
	if err := r.Run(t.Context(), target, h); err != nil {
		t.Fatal(err)
	}
	if got.URL.String() != "http://[fd00::1]:8080/bye?x=1" || len(got.Header["X-A"]) != 2 || got.Header.Get("User-Agent") != "kube-lifecycle/1.36" {
		t.Errorf("request %s %v", got.URL, got.Header)
	}
	h.HTTPGet.Port = intstr.FromString("other")
	if err := r.Run(t.Context(), target, h); !strings.Contains(text(err), `port "other"`) {
		t.Errorf("unknown port: %v", err)
	}
}

func TestAPathThatIsNoneIsAskedForEscaped(t *testing.T) {
	for path, want := range map[string]string{
		"/100%": "http://10.0.0.1:1/100%25", "/%zz?x=1": "http://10.0.0.1:1/%25zz%3Fx=1", "/a%20b": "http://10.0.0.1:1/a%20b", "": "http://10.0.0.1:1/",
	} {
		var got string
		r := New(Deps{Transport: trip(func(req *http.Request) (*http.Response, error) { got = req.URL.String(); return answer(200), nil })})
		h := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(1)}}
		if err := r.Run(t.Context(), Target{PodIP: "10.0.0.1", Container: &v1.Container{Name: "c"}}, h); err != nil || got != want {
			t.Errorf("%q: asked for %q, want %q: %v", path, got, want, err)
		}
	}
}

// A server that redirects /bye to /bye/ has not been told anything yet.
func TestAnHTTPHookFollowsRedirectsOnItsHostOnly(t *testing.T) {
	to := func(location string) *http.Response {
		a := answer(301)
		a.Header = http.Header{"Location": {location}}
		return a
	}
	for _, tc := range []struct {
		name, location string
		want           []string // the URLs that are asked for, and whether with credentials
		failed         string
	}{
		{"another path", "/bye/", []string{"https://10.0.0.1:1/bye true", "https://10.0.0.1:1/bye/ true"}, ""},
		{"another port of it, in the clear", "http://10.0.0.1:2/bye", []string{"https://10.0.0.1:1/bye true", "http://10.0.0.1:2/bye false"}, ""},
		{"another host", "https://elsewhere:1/bye", []string{"https://10.0.0.1:1/bye true"}, ""},
		{"itself", "/bye", nil, "stopped after 10 redirects"},
	} {
		var got []string
		r := New(Deps{Transport: trip(func(req *http.Request) (*http.Response, error) {
			got = append(got, fmt.Sprint(req.URL, " ", req.Header.Get("Authorization") != ""))
			if len(got) == 1 || tc.failed != "" {
				return to(tc.location), nil
			}
			return answer(200), nil
		})})
		h := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
			Scheme: "HTTPS", Path: "/bye", Port: intstr.FromInt32(1), HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "secret"}},
		}}
		err := r.Run(t.Context(), Target{PodIP: "10.0.0.1", Container: &v1.Container{Name: "c"}}, h)
		if tc.want != nil && !slices.Equal(got, tc.want) || (err != nil) != (tc.failed != "") || !strings.Contains(text(err), tc.failed) {
			t.Errorf("%s: asked for %q, error %v; want %q", tc.name, got, err, tc.want)
		}
	}
}

// told keeps the events of pods.
type told []string

func (e *told) Pod(_ *v1.Pod, typ, reason, message string) {
	*e = append(*e, typ+" "+reason+": "+message)
}

func TestHTTPSHookFallsBackToHTTPWithoutCredentials(t *testing.T) {
	for name, again := range map[string]error{"it works": nil, "it does not": errors.New("refused")} {
		t.Run(name, func(t *testing.T) {
			var second *http.Request
			var events told
			r := New(Deps{Events: &events, Transport: trip(func(req *http.Request) (*http.Response, error) {
				if req.URL.Scheme == "https" {
					return nil, errors.New("http: server gave HTTP response to HTTPS client")
				}
				second = req
				if again != nil {
					return nil, again
				}
				return answer(200), nil
			})})
			h := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
				Scheme: "HTTPS", Host: "h", Port: intstr.FromInt32(1), HTTPHeaders: []v1.HTTPHeader{{Name: "authorization", Value: "secret"}},
			}}
			err := r.Run(t.Context(), Target{Pod: &v1.Pod{}, Container: &v1.Container{}}, h)
			if (err == nil) != (again == nil) || second == nil || second.Header.Get("Authorization") != "" {
				t.Errorf("error %v, second request %v", err, second)
			}
			want := "Warning LifecycleHTTPFallback: request to HTTPS lifecycle hook h:1 got HTTP response, retry with HTTP succeeded"
			if again == nil && (len(events) != 1 || events[0] != want) || again != nil && len(events) != 0 {
				t.Errorf("events %q", events)
			}
		})
	}
}

// served answers one request with raw bytes, and says where.
func served(t *testing.T, answer string) (port int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
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
		_, _ = io.WriteString(conn, answer)
		_, _ = io.Copy(io.Discard, conn) // until the hook leaves
	}()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

// TestAnAnswerWithALongHeaderIsOne: any answer is a success, and of a header only its first
// 16 KiB are read.
func TestAnAnswerWithALongHeaderIsOne(t *testing.T) {
	port := served(t, "HTTP/1.1 200 OK\r\n"+strings.Repeat("X-Long: "+strings.Repeat("x", 1000)+"\r\n", 1000)) // which does not end
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	h := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt32(port)}}
	if err := New(Deps{}).Run(ctx, Target{Container: &v1.Container{}}, h); err != nil {
		t.Errorf("1 MiB of headers: %v", err)
	}
}

// TestOfAHookThatIsOverNoConnectionIsLeft: the server accepts, and says nothing.
func TestOfAHookThatIsOverNoConnectionIsLeft(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
			_, _ = conn.Read(make([]byte, 1)) // it is asked
			cancel()
			_, err = io.Copy(io.Discard, conn) // nil at its end
			_ = conn.Close()
		}
		left <- err
	}()
	h := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS, Host: "127.0.0.1", Port: intstr.FromInt32(int32(l.Addr().(*net.TCPAddr).Port))}}
	if err := New(Deps{}).Run(ctx, Target{Container: &v1.Container{}}, h); err == nil {
		t.Error("a hook without an answer succeeds")
	}
	var slow net.Error
	if err := <-left; errors.As(err, &slow) && slow.Timeout() {
		t.Error("30 seconds later the connection is open")
	}
}

// TestAPathDoesNotSayThatAHookHadAnAnswer: errors of net/http have the whole URL.
func TestAPathDoesNotSayThatAHookHadAnAnswer(t *testing.T) {
	refused := trip(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
	h := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/?x=server response headers exceeded", Host: "127.0.0.1", Port: intstr.FromInt32(1)}}
	if err := New(Deps{Transport: refused}).Run(t.Context(), Target{Container: &v1.Container{}}, h); err == nil {
		t.Error("a hook that nobody heard succeeds")
	}
}

// showing is a server that shows its certificate so many times, and the hook that asks it.
func showing(t *testing.T, certificates int, answer http.HandlerFunc) *v1.LifecycleHandler {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	chain := &server.TLS.Certificates[0]
	for leaf := chain.Certificate[0]; len(chain.Certificate) < certificates; {
		chain.Certificate = append(chain.Certificate, leaf)
	}
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS, Host: "127.0.0.1", Port: intstr.Parse(port)}}
}

func of(namespace string) Target {
	return Target{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}, Container: &v1.Container{}}
}

// TestHooksOfServersThatShowManyCertificatesWaitForEachOther: few such connections are held
// at once, and none fails for it.
func TestHooksOfServersThatShowManyCertificatesWaitForEachOther(t *testing.T) {
	h := showing(t, 200, func(http.ResponseWriter, *http.Request) { time.Sleep(100 * time.Millisecond) })
	hooks, errs := New(Deps{}), make(chan error, 5)
	for range cap(errs) {
		go func() { errs <- hooks.Run(t.Context(), of("a"), h) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestHooksOfServersThatShowSomeCertificatesDoNotWait: when a node is drained, preStop
// hooks of many pods that have 20 KiB of them begin together, and grace is all they have.
func TestHooksOfServersThatShowSomeCertificatesDoNotWait(t *testing.T) {
	const pods = 20
	var asked atomic.Int32
	together := make(chan struct{})
	h := showing(t, 25, func(_ http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == pods {
			close(together)
		}
		select {
		case <-together:
		case <-r.Context().Done():
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hooks, errs := New(Deps{}), make(chan error, pods)
	for range cap(errs) {
		go func() { errs <- hooks.Run(ctx, of("a"), h) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestHooksThatHangKeepNoOtherNamespaceWaiting: who writes a pod says which hosts its hooks
// ask, also one that another's do.
func TestHooksThatHangKeepNoOtherNamespaceWaiting(t *testing.T) {
	const hanging = 12
	ctx, cancel := context.WithCancel(t.Context())
	hooks, begun, over := New(Deps{}), make(chan struct{}, hanging), make(chan struct{}, hanging)
	hangs := showing(t, 200, func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
	})
	for range hanging {
		go func() { _ = hooks.Run(ctx, of("a"), hangs); over <- struct{}{} }()
	}
	for range 2 { // of each further one there is room for a part
		<-begun
	}
	soon, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := hooks.Run(soon, of("b"), showing(t, 200, func(http.ResponseWriter, *http.Request) {})); err != nil {
		t.Error(err)
	}
	cancel()
	for range hanging {
		<-over
	}
}

func TestWhatAServerAnswersAHookIsInNoError(t *testing.T) {
	for name, answer := range map[string]string{
		"no HTTP":   "hunter2\r\n\r\n",
		"no header": "HTTP/1.1 200 OK\r\nhunter2 \x1b[2J\r\n\r\n",
		"status":    "HTTP/1.1 hunter2 OK\r\n\r\n",
	} {
		port := served(t, answer)
		h := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt32(port)}}
		err := New(Deps{}).Run(t.Context(), Target{Container: &v1.Container{}}, h)
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "no HTTP answer") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSleepHookEndsWithItsTimeOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Deps{Transport: trip(nil)})
		h := &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}}
		began := time.Now()
		if err := r.Run(t.Context(), Target{}, h); err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("slept %v, %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, seconds := range []int64{5, math.MaxInt64} {
			h.Sleep.Seconds = seconds
			if err := r.Run(ctx, Target{}, h); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("cut sleep of %d s: %v", seconds, err)
			}
		}
	})
	if err := New(Deps{Transport: trip(nil)}).Run(t.Context(), Target{}, &v1.LifecycleHandler{}); err == nil {
		t.Error("an empty handler was a success")
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
