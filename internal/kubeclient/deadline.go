package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// AnswerTimeout is how long the beginning of an answer may take, and each part of what
// follows; kube-apiserver itself gives up on a request after a minute. In a watch nothing
// need follow: see watchGrace.
const AnswerTimeout = 65 * time.Second

// watchGrace is how much longer a watch may last than the apiserver was asked to keep it.
// A proxy may keep it open for ever whose apiserver is gone, and the node would learn of
// nothing any more.
const watchGrace = time.Minute

// longestAnswer is how many bytes an answer may have that is no watch. All services of a
// cluster are the most that this node asks for at once: tens of thousands of them come to
// a third of it. A watch is read object by object, each of which client-go bounds.
const longestAnswer = 256 << 20

// errTooLong ends an answer that is longer.
var errTooLong = errors.New("the answer is too long")

// errOverdue ends a watch that should have been ended.
var errOverdue = errors.New("the apiserver has not ended a watch in its time")

// errStopped ends an answer of which nothing more comes.
var errStopped = errors.New("the answer is not whole")

// WithAnswerTimeout bounds the time until an answer begins, for every request, watches
// too, and how long one may stop that has begun: one that hangs would else hang for ever,
// for who lists to watch, in client-go, has no deadline. A watch that the apiserver was asked
// to end ends in order soon after that time, whether it did or not. Any other answer is an
// error from longestAnswer on.
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
	out := &body{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, overdue: timer}
	switch last := asked(req); {
	case last > 0:
		out.overdue = time.AfterFunc(last+watchGrace, func() { cancel(errOverdue) })
	case !isWatch(req):
		out.ReadCloser = &shortened{ReadCloser: resp.Body, left: longestAnswer, host: req.URL.Host}
		out.stopped = func() {
			cancel(fmt.Errorf("%w: %s sent nothing more within %v", errStopped, req.URL.Host, AnswerTimeout))
		}
	}
	resp.Body = out
	return resp, nil
}

// asked is how long the apiserver was asked to keep a watch; 0 where it was not.
func asked(req *http.Request) time.Duration {
	seconds, err := strconv.ParseInt(req.URL.Query().Get("timeoutSeconds"), 10, 32)
	if err != nil || seconds < 0 || !isWatch(req) {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// WrappedRoundTripper lets client-go find the transport below.
func (a *answerTimeout) WrappedRoundTripper() http.RoundTripper { return a.next }

// shortened is an answer of which no more than left is read.
type shortened struct {
	io.ReadCloser
	left int64
	host string
}

func (s *shortened) Read(p []byte) (int, error) {
	if int64(len(p)) > s.left {
		p = p[:s.left+1] // one more says whether there is more
	}
	n, err := s.ReadCloser.Read(p)
	if int64(n) > s.left {
		return int(s.left), fmt.Errorf("%w: %s sends more than %d bytes", errTooLong, s.host, longestAnswer)
	}
	s.left -= int64(n)
	return n, err
}

// body frees the request's context with its end.
type body struct {
	io.ReadCloser
	ctx     context.Context //nolint:containedctx // It is the request's, which lasts as long.
	cancel  context.CancelCauseFunc
	overdue *time.Timer
	stopped func() // ends one of which nothing comes; nil where nothing need follow
}

func (b *body) Read(p []byte) (int, error) {
	if b.stopped != nil {
		defer time.AfterFunc(AnswerTimeout, b.stopped).Stop()
	}
	n, err := b.ReadCloser.Read(p)
	switch cause := context.Cause(b.ctx); {
	case err == nil:
	case errors.Is(cause, errOverdue):
		err = io.EOF
	case errors.Is(cause, errStopped):
		err = cause
	}
	return n, err
}

func (b *body) Close() error {
	defer b.cancel(nil)
	b.overdue.Stop()
	return b.ReadCloser.Close()
}
