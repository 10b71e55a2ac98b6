// Package limit bounds what each class of clients may cost: how many requests
// of a class are served at once, how long a client may take to send or receive,
// and how many reviews by the apiserver are under way for those who are not
// known yet. It must never know a path.
package limit

import (
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/polylet/polylet/services/gateway/internal/answer"
)

// Class is a kind of requests. The zero value is not usable; see New.
type Class struct {
	cfg   Config
	slots chan struct{}
}

// Config describes a class.
type Config struct {
	// Name for messages.
	Name string
	// AtOnce is how many are served at the same time.
	AtOnce int
	// Wait is how long one more may wait for its turn; 0 refuses it at once.
	Wait time.Duration
	// Deadline is how long the client may take to send its body and to receive
	// the answer; 0 leaves it to the port.
	Deadline time.Duration
}

// New returns a Class.
func New(cfg Config) *Class { return &Class{cfg: cfg, slots: make(chan struct{}, cfg.AtOnce)} }

// Wrap returns a handler that serves next within the limits of the class. What
// is too much gets 429.
func (c *Class) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.enter(r) {
			w.Header().Set("Retry-After", "1")
			answer.Text(w, http.StatusTooManyRequests, "too many requests: "+strconv.Itoa(c.cfg.AtOnce)+" for "+c.cfg.Name+" are under way; try again")
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

func (c *Class) enter(r *http.Request) bool {
	select {
	case c.slots <- struct{}{}:
		return true
	default:
	}
	if c.cfg.Wait == 0 {
		return false
	}
	patience := time.NewTimer(c.cfg.Wait)
	defer patience.Stop()
	select {
	case c.slots <- struct{}{}:
		return true
	case <-patience.C:
	case <-r.Context().Done():
	}
	return false
}

// Reviews bounds how many requests are being authenticated and authorised at
// once, in all and of one address, so that nobody can fill the gateway's memory
// or have it flood the apiserver. Safe for concurrent use; see NewReviews.
type Reviews struct {
	most, mostOfOne int

	mu     sync.Mutex
	all    int
	byHost map[string]int
}

// NewReviews returns Reviews.
func NewReviews(most, mostOfOne int) *Reviews {
	return &Reviews{most: most, mostOfOne: mostOfOne, byHost: map[string]int{}}
}

// Begin returns what ends a review of a request from address (host:port), or
// nil when there are too many.
func (l *Reviews) Begin(address string) (end func()) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.most || l.byHost[host] >= l.mostOfOne {
		return nil
	}
	l.all++
	l.byHost[host]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
		if l.byHost[host]--; l.byHost[host] == 0 {
			delete(l.byHost, host)
		}
	}
}
