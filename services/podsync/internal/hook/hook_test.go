package hook

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
		"exit code":       {execs{resp: &runtimeapi.ExecSyncResponse{ExitCode: 3, Stderr: []byte("no\n")}}, `command ["a"] exited with 3: no`},
		"no text":         {execs{resp: &runtimeapi.ExecSyncResponse{ExitCode: 1, Stderr: []byte("\xff!")}}, "command [\"a\"] exited with 1: \uFFFD!"},
		"runtime failure": {execs{err: errors.New("gone")}, `run ["a"] in container c: gone`},
	} {
		err := New(Deps{Exec: tc.execs}).Run(t.Context(), target, h)
		if got := text(err); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
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
