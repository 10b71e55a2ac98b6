// Package inflight bounds what each class of clients may cost: how many requests
// of a class are served at once, how long a client may take to send or receive,
// and how many reviews by the apiserver are under way. It must never know a path.
package inflight

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// Class is a kind of requests. The zero value is not usable; see New.
type Class struct {
	cfg       Config
	places    *places
	receivers *receivers // nil where Slow is 0
}

// Config describes a class.
type Config struct {
	// Name for messages.
	Name string
	// AtOnce is how many are served at the same time.
	AtOnce int
	// MostOfOne is how many of them may be somebody's who is alone, where Of says whose a
	// request is; the more others have, the fewer: see places. What it calls "" is
	// nobody's. A nil Of counts in all only.
	MostOfOne int
	Of        func(*http.Request) string
	// Wait is how long one more may wait for its turn; 0 refuses it at once.
	Wait time.Duration
	// Deadline is how long the client may take to receive the answer, and to
	// send its body if BodyTime is 0; 0 leaves it to the port.
	Deadline time.Duration
	// Slow is how long it may take to receive it while others wait for a place, which is
	// to be less than Wait: then it is cut off. 0 cuts off nobody.
	Slow time.Duration
	// BodyTime is how long the client may take to send its body, which is read
	// before a place is taken: whoever promises a body and sends none holds none.
	// 0 leaves the body to the handler.
	BodyTime time.Duration
	// BodyBytes is how large that body may be.
	BodyBytes int64
}

// New returns a Class.
func New(cfg Config) *Class {
	c := &Class{cfg: cfg, places: newPlaces(cfg.AtOnce, cfg.MostOfOne)}
	if cfg.Slow > 0 {
		c.receivers = newReceivers(cfg.Slow, c.places.has)
	}
	return c
}

// Wrap returns a handler that serves next within the limits of the class. What
// is too much gets 429.
func (c *Class) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.cfg.BodyTime > 0 && !c.receive(w, r) {
			return
		}
		whose := ""
		if c.cfg.Of != nil {
			whose = c.cfg.Of(r)
		}
		if !c.enter(r.Context(), whose) {
			c.refuse(w, whose)
			return
		}
		defer c.places.leave(whose)
		if c.cfg.Deadline > 0 {
			at, conn := time.Now().Add(c.cfg.Deadline), http.NewResponseController(w)
			// A writer that knows no deadlines is a test's.
			_ = conn.SetReadDeadline(at)
			_ = conn.SetWriteDeadline(at)
		}
		if c.receivers != nil {
			one, end := c.receivers.begin(w, whose)
			defer end()
			w = one
		}
		next.ServeHTTP(w, r)
	})
}

// enter takes a place, for which others make room that receive their answers slowly.
func (c *Class) enter(ctx context.Context, whose string) bool {
	if c.places.enter(ctx, whose, 0) {
		return true
	}
	if c.receivers != nil {
		defer c.receivers.waits(whose)()
	}
	return c.places.enter(ctx, whose, c.cfg.Wait)
}

// refuse answers a request for which there is no place.
func (c *Class) refuse(w http.ResponseWriter, whose string) {
	w.Header().Set("Retry-After", "1")
	if has := c.places.has(whose); has > 0 {
		httperror.Text(w, http.StatusTooManyRequests, "too many requests: "+strconv.Itoa(has)+" of "+whose+" for "+c.cfg.Name+" are under way, and some are kept for others; end some")
		return
	}
	httperror.Text(w, http.StatusTooManyRequests, "too many requests: "+strconv.Itoa(c.cfg.AtOnce)+" for "+c.cfg.Name+" are under way; try again")
}

// receive reads the body into memory. It answers when there is none to be had.
func (c *Class) receive(w http.ResponseWriter, r *http.Request) bool {
	if r.Body == nil || r.Body == http.NoBody {
		return true
	}
	// A writer that knows no deadlines is a test's.
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(c.cfg.BodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, c.cfg.BodyBytes))
	var tooLarge *http.MaxBytesError
	status := http.StatusBadRequest
	switch {
	case err == nil:
		_ = conn.SetReadDeadline(time.Now().Add(c.cfg.Wait + c.cfg.Deadline))
		r.Body = io.NopCloser(bytes.NewReader(body))
		return true
	case errors.As(err, &tooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		status = http.StatusRequestTimeout
	}
	w.Header().Set("Connection", "close")
	httperror.Text(w, status, "the request's body could not be read: "+err.Error())
	return false
}
