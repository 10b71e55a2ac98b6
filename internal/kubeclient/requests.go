package kubeclient

import (
	"context"
	"io"
	"net/http"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// requests are those under way on the connections of one credential.
type requests struct {
	*state
}

type state struct {
	mu      sync.Mutex
	count   int
	retired bool
	watches map[*context.CancelFunc]struct{}
}

func newRequests() requests {
	return requests{&state{watches: map[*context.CancelFunc]struct{}{}}}
}

func isWatch(req *http.Request) bool {
	query := req.URL.Query()
	return query.Get("watch") == "true" || query.Get("watch") == "1"
}

// begin counts a request. done is to be called once when it has ended.
func (r requests) begin(req *http.Request) (ctx context.Context, done func(http.RoundTripper)) {
	ctx, cancel := context.WithCancel(req.Context())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	key := &cancel
	if isWatch(req) {
		r.watches[key] = struct{}{}
		if r.retired {
			cancel()
		}
	}
	var once sync.Once
	return ctx, func(transport http.RoundTripper) {
		once.Do(func() {
			cancel()
			r.mu.Lock()
			r.count--
			delete(r.watches, key)
			last := r.retired && r.count == 0
			r.mu.Unlock()
			if last {
				closeIdle(transport)
			}
		})
	}
}

// retire ends the watches, and the connections with the last request on them.
func (r requests) retire(transport http.RoundTripper) {
	r.mu.Lock()
	r.retired = true
	idle := r.count == 0
	var ends []context.CancelFunc
	for cancel := range r.watches {
		ends = append(ends, *cancel)
	}
	r.mu.Unlock()
	for _, end := range ends {
		end()
	}
	if idle {
		closeIdle(transport)
	}
}

func (r requests) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.retired
}

func closeIdle(transport http.RoundTripper) { utilnet.CloseIdleConnectionsFor(transport) }

// lease is an answer's body that counts as under way until it is closed. A watch whose
// credential was replaced ends like one that the apiserver ends.
type lease struct {
	io.ReadCloser
	ended func() bool
	watch bool
	done  func()
}

func (l *lease) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if err != nil && l.watch && l.ended() {
		err = io.EOF
	}
	return n, err
}

func (l *lease) Close() error {
	err := l.ReadCloser.Close()
	l.done()
	return err
}
