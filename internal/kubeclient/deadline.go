package kubeclient

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// AnswerTimeout is how long the beginning of an answer may take; kube-apiserver
// itself gives up on a request after a minute. What follows, such as the events
// of a watch, is not bounded.
const AnswerTimeout = 65 * time.Second

// WithAnswerTimeout bounds the time until an answer begins, for every request,
// watches too: one that hangs would else hang for ever.
func WithAnswerTimeout(next http.RoundTripper) http.RoundTripper { return &answerTimeout{next} }

type answerTimeout struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a *answerTimeout) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(AnswerTimeout, func() {
		cancel(fmt.Errorf("no answer from %s within %v", req.URL.Host, AnswerTimeout))
	})
	resp, err := a.next.RoundTrip(req.WithContext(ctx))
	timer.Stop()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && req.Context().Err() == nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &body{resp.Body, cancel}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (a *answerTimeout) WrappedRoundTripper() http.RoundTripper { return a.next }

// body frees the request's context with its end.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
