// Package inflight bounds what each class of clients may cost: how many requests
// of a class are served at once, how long a client may take to send or receive,
// and how many reviews by the apiserver are under way. It must never know a path.
package inflight

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// Class is a kind of requests. The zero value is not usable; see New.
type Class struct {
	cfg   Config
	slots chan struct{}

	mu sync.Mutex
	of map[string]int // places by whose they are
}

// Config describes a class.
type Config struct {
	// Name for messages.
	Name string
	// AtOnce is how many are served at the same time.
	AtOnce int
	// MostOfOne is how many of them may be somebody's, where Of says whose a request is;
	// what it calls "" is nobody's. A nil Of counts in all only.
	MostOfOne int
	Of        func(*http.Request) string
	// Wait is how long one more may wait for its turn; 0 refuses it at once.
	Wait time.Duration
	// Deadline is how long the client may take to receive the answer, and to
	// send its body if BodyTime is 0; 0 leaves it to the port.
	Deadline time.Duration
	// BodyTime is how long the client may take to send its body, which is read
	// before a place is taken: whoever promises a body and sends none holds none.
	// 0 leaves the body to the handler.
	BodyTime time.Duration
	// BodyBytes is how large that body may be.
	BodyBytes int64
}

// New returns a Class.
func New(cfg Config) *Class {
	return &Class{cfg: cfg, slots: make(chan struct{}, cfg.AtOnce), of: map[string]int{}}
}

// Wrap returns a handler that serves next within the limits of the class. What
// is too much gets 429.
func (c *Class) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.cfg.BodyTime > 0 && !c.receive(w, r) {
			return
		}
		leave, ok := c.share(r)
		if !ok {
			w.Header().Set("Retry-After", "1")
			httperror.Text(w, http.StatusTooManyRequests, "too many requests: "+strconv.Itoa(c.cfg.MostOfOne)+" of "+c.cfg.Of(r)+" for "+c.cfg.Name+" are under way, and some are kept for others; end some")
			return
		}
		defer leave()
		if !c.enter(r) {
			w.Header().Set("Retry-After", "1")
			httperror.Text(w, http.StatusTooManyRequests, "too many requests: "+strconv.Itoa(c.cfg.AtOnce)+" for "+c.cfg.Name+" are under way; try again")
			return
		}
		defer func() { <-c.slots }()
		if c.cfg.Deadline > 0 {
			at, conn := time.Now().Add(c.cfg.Deadline), http.NewResponseController(w)
			// A writer that knows no deadlines is a test's.
			_ = conn.SetReadDeadline(at)
			_ = conn.SetWriteDeadline(at)
		}
		next.ServeHTTP(w, r)
	})
}

// share counts a request among those of whom it is of.
func (c *Class) share(r *http.Request) (leave func(), ok bool) {
	whose := ""
	if c.cfg.Of != nil {
		whose = c.cfg.Of(r)
	}
	if whose == "" {
		return func() {}, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[whose] >= c.cfg.MostOfOne {
		return nil, false
	}
	c.of[whose]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.of[whose]--; c.of[whose] == 0 {
			delete(c.of, whose)
		}
	}, true
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

func (c *Class) enter(r *http.Request) bool {
	select {
	case c.slots <- struct{}{}:
		return true
	default:
	}
	if c.cfg.Wait == 0 {
		return false
	}
	timeout := time.NewTimer(c.cfg.Wait)
	defer timeout.Stop()
	select {
	case c.slots <- struct{}{}:
		return true
	case <-timeout.C:
	case <-r.Context().Done():
	}
	return false
}
