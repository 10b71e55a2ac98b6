package kubeclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestARequestThatHangsEndsAndAnAnswerMayGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://apiserver/x", http.NoBody)
		hung := WithAnswerTimeout(trip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}))
		began := time.Now()
		if _, err := hung.RoundTrip(req); err == nil || !strings.Contains(err.Error(), "no answer from apiserver") || time.Since(began) != AnswerTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := hung.RoundTrip(req.WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's own deadline gave %v", err)
		}
		var inner context.Context
		long := WithAnswerTimeout(trip(func(r *http.Request) (*http.Response, error) {
			inner = r.Context()
			return &http.Response{Body: io.NopCloser(strings.NewReader("x"))}, nil
		}))
		resp, err := long.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if inner.Err() != nil {
			t.Error("the answer was cut")
		}
		if resp.Body.Close(); inner.Err() == nil {
			t.Error("the context outlives the answer")
		}
	})
}

// A proxy may keep a watch open whose apiserver is gone, and answer whoever asks whether the
// connection lives.
func TestAWatchEndsInOrderSoonAfterItShouldHaveBeenEnded(t *testing.T) {
	for query, want := range map[string]time.Duration{
		"watch=true&timeoutSeconds=300": 300*time.Second + watchGrace,
		"watch=1&timeoutSeconds=1":      time.Second + watchGrace,
		"watch=true":                    24 * time.Hour, // nobody has said when
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://apiserver/x?"+query, http.NoBody)
			resp, err := WithAnswerTimeout(trip(func(r *http.Request) (*http.Response, error) {
				events, to := io.Pipe()
				context.AfterFunc(r.Context(), func() { _ = to.CloseWithError(r.Context().Err()) })
				return &http.Response{Body: events}, nil
			})).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			began := time.Now()
			_, err = resp.Body.Read(make([]byte, 1))
			if took := time.Since(began); took != want || errors.Is(err, io.EOF) != (want < 24*time.Hour) {
				t.Errorf("%s ended with %v after %v, want %v", query, err, took, want)
			}
		})
	}
}

// Who lists to watch, in client-go, has no deadline, and would learn of nothing any more.
func TestAnAnswerThatStopsHalfWayIsAnErrorAndOneThatGoesOnIsNot(t *testing.T) {
	for _, tc := range []struct {
		every, reader time.Duration
		want          error
	}{
		{AnswerTimeout - time.Second, 0, io.EOF},
		{0, 2 * AnswerTimeout, io.EOF}, // who reads may take his time
		{AnswerTimeout + time.Second, 0, errStopped},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			var writer sync.WaitGroup
			defer writer.Wait()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://apiserver/x?timeoutSeconds=300", http.NoBody)
			resp, err := WithAnswerTimeout(trip(func(r *http.Request) (*http.Response, error) {
				text, to := io.Pipe()
				context.AfterFunc(r.Context(), func() { _ = to.CloseWithError(r.Context().Err()) })
				writer.Go(func() {
					for range 10 {
						time.Sleep(tc.every)
						_, _ = to.Write([]byte("x"))
					}
					_ = to.Close()
				})
				return &http.Response{Body: text}, nil
			})).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			for err == nil {
				time.Sleep(tc.reader)
				_, err = resp.Body.Read(make([]byte, 1))
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("with a part every %v, read every %v: %v, want %v", tc.every, tc.reader, err, tc.want)
			}
		})
	}
}

// noughts are as many bytes as are read.
type noughts struct{ read int }

func (n *noughts) Read(p []byte) (int, error) { n.read += len(p); return len(p), nil }

// client-go holds a whole answer before it looks at it.
func TestAnAnswerThatDoesNotEndIsBroken(t *testing.T) {
	get := func(query string, body io.Reader) *http.Response {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://apiserver/x?"+query, http.NoBody)
		resp, err := WithAnswerTimeout(trip(func(*http.Request) (*http.Response, error) {
			return &http.Response{Body: io.NopCloser(body)}, nil
		})).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	read := func(query string, body io.Reader) (int64, error) {
		resp := get(query, body)
		defer resp.Body.Close()
		return io.Copy(io.Discard, io.LimitReader(resp.Body, longestAnswer+1<<20))
	}
	if n, err := read("", &noughts{}); !errors.Is(err, errTooLong) || n > longestAnswer {
		t.Errorf("of an answer without end %d bytes are read, and then: %v", n, err)
	}
	if n, err := read("", io.LimitReader(&noughts{}, longestAnswer)); err != nil || n != longestAnswer {
		t.Errorf("of the longest answer %d bytes are read, and then: %v", n, err)
	}
	if n, err := read("watch=true", &noughts{}); err != nil || n <= longestAnswer {
		t.Errorf("of a watch %d bytes are read, and then: %v", n, err)
	}
}
