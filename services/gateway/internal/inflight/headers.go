package inflight

import (
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// HeadersConfig says how many bytes requests may take that are under way.
type HeadersConfig struct {
	// Known and Unknown are how many of those who are known, and of all others.
	Known, Unknown Share
	// Each is what a request takes beside its line and header.
	Each int
	// Of says whose a request is, and whether that is known: what unknown clients hold,
	// who need no credential for it, keeps nobody out who has one.
	Of func(*http.Request) (name string, known bool)
}

// Share is how many bytes: in all, and of one of them.
type Share struct{ Most, MostOfOne int }

// Headers bounds what the requests of a port hold, from when their headers were read
// until they are answered: who asks is not known before, and who does not read an answer
// keeps a request under way. Safe for concurrent use; see NewHeaders.
type Headers struct {
	cfg HeadersConfig

	mu             sync.Mutex
	known, unknown held
}

// held is what requests hold, in all and by whose they are.
type held struct {
	all int
	of  map[string]int
}

// eachName is what a header's place among the others takes, in bytes: of a header of a few
// letters that is most.
const eachName = 128

// mostNames is how many headers a request may have, those of one name counted each. An
// apiserver passes on those of its clients, a megabyte of which is twenty here when they
// are of a few letters each, as long as the session lasts.
const mostNames = 256

func tooManyNames(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Connection", "close")
	httperror.Text(w, http.StatusRequestHeaderFieldsTooLarge, "the request has more than "+strconv.Itoa(mostNames)+" headers")
}

// refusedTime is how long a client may take to receive an error.
const refusedTime = 10 * time.Second

// NewHeaders returns Headers.
func NewHeaders(cfg HeadersConfig) *Headers {
	return &Headers{cfg: cfg, known: held{of: map[string]int{}}, unknown: held{of: map[string]int{}}}
}

// Wrap returns a handler that serves next within the bounds. What is too much is not
// answered: an answer that nobody reads would take its part.
func (h *Headers) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mine, ok := h.enter(r)
		if !ok {
			panic(http.ErrAbortHandler)
		}
		defer mine.leave()
		defer forget(r)
		serve := next.ServeHTTP
		if lines(r.Header) > mostNames {
			serve = tooManyNames
		}
		if r.ProtoMajor < 2 { // the answer waits in the system's buffers
			serve(w, r)
			return
		}
		noted := &noted{ResponseWriter: w}
		serve(noted, r)
		forget(r)
		if noted.status >= http.StatusBadRequest {
			mine.refused()
			out := http.NewResponseController(w)
			_ = out.SetWriteDeadline(time.Now().Add(refusedTime))
			_ = out.Flush() // a client that went away needs no answer
		}
	})
}

// part is what one request holds.
type part struct {
	of   *Headers
	held *held
	name string
	n    int
}

func (h *Headers) enter(r *http.Request) (*part, bool) {
	name, known := h.cfg.Of(r)
	p, most := &part{of: h, held: &h.unknown, name: name, n: RequestBytes(r) + eachName*lines(r.Header) + h.cfg.Each}, h.cfg.Unknown
	if known {
		p.held, most = &h.known, h.cfg.Known
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.held.all+p.n > most.Most || p.held.of[name]+p.n > most.MostOfOne {
		return nil, false
	}
	p.held.all += p.n
	p.held.of[name] += p.n
	return p, true
}

// refused leaves a request that is refused what it still takes. That of unknown clients is
// bounded by how many connections and streams they have, and is not counted: who lets no
// answer come would hold all that unknown clients may, in which callers arrive by token.
func (p *part) refused() {
	if p.held == &p.of.unknown {
		p.shrink(0)
		return
	}
	p.shrink(p.of.cfg.Each)
}

func (p *part) leave() { p.shrink(0) }

func (p *part) shrink(to int) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.held.all -= p.n - to
	if p.held.of[p.name] -= p.n - to; p.held.of[p.name] == 0 {
		delete(p.held.of, p.name)
	}
	p.n = to
}

// forget lets go of what came with a request that nobody serves any more: its stream may
// be open for hours yet.
func forget(r *http.Request) {
	clear(r.Header) // others have it, too
	r.Header = http.Header{}
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

// lines is how many headers there are.
func lines(h http.Header) int {
	n := 0
	for _, values := range h {
		n += len(values)
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
