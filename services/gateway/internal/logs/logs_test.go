package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/rpcerr"
)

type noSessions struct{}

func (noSessions) Begin() func() { return func() {} }

func TestTheQueryBecomesPodLogOptions(t *testing.T) {
	for _, c := range []struct {
		query  string
		status int
		check  func(o *v1.PodLogOptions) bool
	}{
		{"", 0, func(o *v1.PodLogOptions) bool { return !o.Follow && o.TailLines == nil && o.SinceTime == nil }},
		{"follow=true&previous=1&timestamps", 0, func(o *v1.PodLogOptions) bool { return o.Follow && o.Previous && o.Timestamps }},
		{"follow=false&previous=0&timestamps=FALSE", 0, func(o *v1.PodLogOptions) bool { return !o.Follow && !o.Previous && !o.Timestamps }},
		{"tailLines=5&limitBytes=10&sinceSeconds=3", 0, func(o *v1.PodLogOptions) bool {
			return *o.TailLines == 5 && *o.LimitBytes == 10 && *o.SinceSeconds == 3
		}},
		{"tailLines=0", 0, func(o *v1.PodLogOptions) bool { return *o.TailLines == 0 }},
		{"tail=7", 0, func(o *v1.PodLogOptions) bool { return *o.TailLines == 7 }},
		{"tail=all&tailLines=7", 0, func(o *v1.PodLogOptions) bool { return o.TailLines == nil }},
		{"sinceTime=2026-01-02T03:04:05Z", 0, func(o *v1.PodLogOptions) bool { return o.SinceTime.Year() == 2026 }},
		{"stream=All", 0, func(o *v1.PodLogOptions) bool { return *o.Stream == "All" }},
		{"unknown=1", 0, func(*v1.PodLogOptions) bool { return true }},
		{"stream=Stderr", 400, nil},
		{"stream=Stderr&tailLines=1", 422, nil},
		{"stream=stderr", 422, nil},
		{"tailLines=x", 400, nil},
		{"sinceTime=yesterday", 400, nil},
		{"sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z", 422, nil},
		{"sinceSeconds=0", 422, nil},
		{"tailLines=-1", 422, nil},
		{"limitBytes=0", 422, nil},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		o, status, _ := parse(query, false)
		if status != c.status || c.check != nil && !c.check(o) {
			t.Errorf("%q: status %d, options %+v", c.query, status, o)
		}
	}
}

// pieces gives text and then err, one piece per call.
func pieces(err error, texts ...string) Open {
	return func(context.Context, string, string, string, *v1.PodLogOptions) (func() (io.WriterTo, error), error) {
		return func() (io.WriterTo, error) {
			if len(texts) == 0 {
				return nil, err
			}
			text := texts[0]
			texts = texts[1:]
			return strings.NewReader(text), nil
		}, nil
	}
}

func serve(t *testing.T, open Open, query string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(Config{Open: open, Sessions: noSessions{}}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/containerLogs/ns/p/c?"+query, nil))
	return w
}

func TestErrorsBeforeTheFirstByteGetTheKubeletsStatus(t *testing.T) {
	for _, c := range []struct {
		err    error
		query  string
		status int
		body   string
	}{
		{fmt.Errorf("pod %q does not exist: %w", "p", rpcerr.ErrNotFound), "", 404, `pod "p" does not exist`},
		{fmt.Errorf("container %q in pod %q is waiting to start: ErrImagePull: %w", "c", "p", rpcerr.ErrPrecondition), "", 400, "is waiting to start: ErrImagePull"},
		{fmt.Errorf("%w: gone", rpcerr.ErrUnavailable), "", 503, "podsync"},
		{errors.New("disk"), "follow=1", 500, "disk"},
		{nil, "limitBytes=0", 422, `{"message": "Invalid request."}`},
		{nil, "tailLines=x", 400, `{"message": "Unable to decode query."}`},
	} {
		w := serve(t, pieces(c.err), c.query)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%v %q: %d %q, want %d %q", c.err, c.query, w.Code, w.Body, c.status, c.body)
		}
	}
}

func TestALogIsPassedOnAndFlushed(t *testing.T) {
	w := serve(t, pieces(io.EOF, "one\n", "two\n"), "follow=1")
	if w.Code != 200 || w.Body.String() != "one\ntwo\n" || !w.Flushed || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
	if w := serve(t, pieces(io.EOF), ""); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("an empty log gives %d %q", w.Code, w.Body)
	}
}

func TestASilentLogThatIsFollowedBeginsAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		open := func(ctx context.Context, _, _, _ string, _ *v1.PodLogOptions) (func() (io.WriterTo, error), error) {
			return func() (io.WriterTo, error) { <-ctx.Done(); return nil, ctx.Err() }, nil
		}
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			Handler(Config{Open: open, Sessions: noSessions{}}).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/x?follow=1", nil))
		}()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !w.Flushed || w.Code != 200 {
			t.Errorf("after two silent seconds: flushed %v, status %d", w.Flushed, w.Code)
		}
		cancel()
		<-done
	})
}

func TestAReadThatBreaksIsNotTakenForTheEnd(t *testing.T) {
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("half a log looks like a whole one")
		}
	}()
	serve(t, pieces(errors.New("cut"), "half"), "")
}
