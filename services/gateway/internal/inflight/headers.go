package inflight

import (
	"net/http"
	"net/url"
	"sync"
	"time"
)

// HeadersConfig says how many bytes requests may take that are under way.
type HeadersConfig struct {
	// Most is how many in all, MostOfOne of one address; Each is what a request takes
	// beside its line and header.
	Most, MostOfOne, Each int
}

// Headers bounds what the requests of a port hold, from when their headers were read
// until they are answered: who asks is not known before, and who does not read an answer
// keeps a request under way. Safe for concurrent use; see NewHeaders.
type Headers struct {
	cfg HeadersConfig

	mu     sync.Mutex
	all    int
	byHost map[string]int
}

// refusedTime is how long a client may take to receive an error.
const refusedTime = 10 * time.Second

// NewHeaders returns Headers.
func NewHeaders(cfg HeadersConfig) *Headers { return &Headers{cfg: cfg, byHost: map[string]int{}} }

// Wrap returns a handler that serves next within the bounds. What is too much is not
// answered: an answer that nobody reads would take its part.
func (h *Headers) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, ok := h.enter(r)
		if !ok {
			panic(http.ErrAbortHandler)
		}
		defer leave()
		defer forget(r)
		if r.ProtoMajor < 2 { // the answer waits in the system's buffers
			next.ServeHTTP(w, r)
			return
		}
		noted := &noted{ResponseWriter: w}
		next.ServeHTTP(noted, r)
		forget(r)
		if noted.status >= http.StatusBadRequest {
			out := http.NewResponseController(w)
			_ = out.SetWriteDeadline(time.Now().Add(refusedTime))
			_ = out.Flush() // a client that went away needs no answer
		}
	})
}

func (h *Headers) enter(r *http.Request) (leave func(), ok bool) {
	n, host := RequestBytes(r)+h.cfg.Each, HostOf(r.RemoteAddr)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all+n > h.cfg.Most || h.byHost[host]+n > h.cfg.MostOfOne {
		return nil, false
	}
	h.all += n
	h.byHost[host] += n
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all -= n
		if h.byHost[host] -= n; h.byHost[host] == 0 {
			delete(h.byHost, host)
		}
	}, true
}

// forget lets go of what came with a request that nobody serves any more: its stream may
// be open for hours yet.
func forget(r *http.Request) {
	clear(r.Header)
	r.URL, r.RequestURI, r.Host = &url.URL{}, "", ""
}

// RequestBytes is how long a request's line and header are.
func RequestBytes(r *http.Request) int {
	n := len(r.RequestURI)
	for name, values := range r.Header {
		for _, value := range values {
			n += len(name) + len(value)
		}
	}
	return n
}

// noted is an answer whose status is noted.
type noted struct {
	http.ResponseWriter
	status int
}

// Unwrap lets http.ResponseController see what is below.
func (n *noted) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (n *noted) WriteHeader(status int) {
	n.status = status
	n.ResponseWriter.WriteHeader(status)
}
