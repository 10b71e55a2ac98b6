package listen

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

// How long is waited after a connection that could not be accepted.
const (
	shortestWait = 5 * time.Millisecond
	longestWait  = time.Second
	// sayAgain is how often it is said at most.
	sayAgain = time.Minute
)

// retrying is a socket that does not fail for what passes: no descriptor or no
// memory is left for a connection, or it was over before it was accepted. The
// servers behind it would end, and with them the sessions that go on.
type retrying struct {
	net.Listener
	log  logr.Logger
	once sync.Once
	done chan struct{}
	said time.Time // one goroutine accepts
}

func newRetrying(sock net.Listener, log logr.Logger) *retrying {
	return &retrying{Listener: sock, log: log, done: make(chan struct{})}
}

// Accept implements net.Listener.
func (p *retrying) Accept() (net.Conn, error) {
	wait := time.Duration(0)
	for {
		conn, err := p.Listener.Accept()
		if err == nil || !passes(err) {
			return conn, err
		}
		if p.said.IsZero() || time.Since(p.said) >= sayAgain {
			p.said = time.Now()
			p.log.Error(err, "Connections cannot be accepted, it is tried again by itself; if files are too many, raise LimitNOFILE or fs.file-max and see who holds them")
		}
		wait = min(max(2*wait, shortestWait), longestWait)
		select {
		case <-p.done:
			return nil, net.ErrClosed
		case <-time.After(wait):
		}
	}
}

// passes says whether a later attempt may succeed: not on a socket that is closed
// or none.
func passes(err error) bool {
	for _, end := range []error{net.ErrClosed, syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK} {
		if errors.Is(err, end) {
			return false
		}
	}
	return true
}

// Close implements net.Listener.
func (p *retrying) Close() error {
	p.once.Do(func() { close(p.done) })
	return p.Listener.Close()
}
