package fakeapiserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// RESTConfig reaches the server in process. The caller may change the copy, for instance
// the UserAgent, which faults and logs see.
func (s *Server) RESTConfig() *rest.Config { return s.restConfig(false) }

func (s *Server) restConfig(admin bool) *rest.Config {
	cfg := &rest.Config{
		Host: "http://fakeapiserver", Transport: &transport{s: s, admin: admin}, UserAgent: "test",
		QPS: -1, // virtual time would wait for a limiter, and a test wants none
	}
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if admin {
		cfg.UserAgent = "admin"
	}
	return cfg
}

// Client is a typed client in process, subject to faults and partitions: the same each
// time, for one keeps nothing of what it did, and to make it costs more than most requests.
func (s *Server) Client() kubernetes.Interface {
	s.clientOnce.Do(func() { s.client = kubernetes.NewForConfigOrDie(s.RESTConfig()) })
	return s.client
}

// Admin is a typed client that no fault and no partition hits: the other people in the
// cluster, and the test itself.
func (s *Server) Admin() kubernetes.Interface {
	s.adminOnce.Do(func() { s.adminClient = kubernetes.NewForConfigOrDie(s.restConfig(true)) })
	return s.adminClient
}

// transport calls the handler over channels and pipes.
type transport struct {
	s     *Server
	admin bool
}

// RoundTrip serves one request in a goroutine of its own and returns when the answer
// begins.
func (t *transport) RoundTrip(hr *http.Request) (*http.Response, error) {
	var body []byte
	if hr.Body != nil {
		var err error
		body, err = io.ReadAll(hr.Body)
		_ = hr.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("read the request's body: %w", err)
		}
	}
	if !t.s.admit(t.admin) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	ctx, cancel := context.WithCancel(hr.Context())
	if t.admin {
		ctx = context.WithValue(ctx, adminKey{}, true)
	}
	inner := hr.Clone(ctx)
	inner.Body = io.NopCloser(bytes.NewReader(body))
	inner.RequestURI = hr.URL.RequestURI()
	inner.RemoteAddr = "127.0.0.1:1"
	pr, pw := io.Pipe()
	w := &pipeWriter{header: http.Header{}, pw: pw, ready: make(chan struct{})}
	unhook := context.AfterFunc(hr.Context(), func() { _ = pw.CloseWithError(hr.Context().Err()) })
	go func() {
		defer t.s.done.Done()
		defer cancel()
		defer unhook()
		w.run(t.s, inner)
	}()
	select {
	case <-w.ready:
	case <-hr.Context().Done():
		cancel()
		_ = pr.CloseWithError(hr.Context().Err())
		return nil, hr.Context().Err()
	}
	if w.aborted {
		cancel()
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return &http.Response{
		Status: http.StatusText(w.code), StatusCode: w.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: &pipeBody{PipeReader: pr, cancel: cancel}, ContentLength: -1, Request: hr,
	}, nil
}

// admit counts a handler that is about to start, unless connections are refused.
func (s *Server) admit(admin bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base.Err() != nil || !admin && s.partition == Refuse {
		return false
	}
	s.done.Add(1)
	return true
}

// pipeBody is the client's end: closing it ends the handler.
type pipeBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b *pipeBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// pipeWriter is the handler's end.
type pipeWriter struct {
	header, sent http.Header
	pw           *io.PipeWriter
	once         sync.Once
	ready        chan struct{} // closed when code and sent, or aborted, are set
	code         int
	aborted      bool
}

// run serves the request; a handler that aborts leaves a connection that was reset.
func (w *pipeWriter) run(h http.Handler, hr *http.Request) {
	defer func() {
		cause := recover()
		if cause == nil {
			w.WriteHeader(http.StatusOK)
			_ = w.pw.Close()
			return
		}
		if cause != http.ErrAbortHandler {
			panic(cause)
		}
		w.once.Do(func() {
			w.aborted = true
			close(w.ready)
		})
		_ = w.pw.CloseWithError(io.ErrUnexpectedEOF)
	}()
	h.ServeHTTP(w, hr)
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(code int) {
	w.once.Do(func() {
		w.code, w.sent = code, w.header.Clone()
		close(w.ready)
	})
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pw.Write(p)
}

// Flush does nothing: the pipe holds nothing back.
func (w *pipeWriter) Flush() {}
