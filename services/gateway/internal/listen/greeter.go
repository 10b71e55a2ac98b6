package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// greeter shakes hands with who comes through a door, and puts those whose
// certificate is good into one queue and all others, of whom nothing is known
// until a request was authorised, into another: the two are served within
// different limits.
type greeter struct {
	sock    net.Listener
	config  *tls.Config
	knows   func([]*x509.Certificate) bool
	timeout time.Duration
	log     logr.Logger

	certified, unknown *queue
}

// run accepts until sock is closed, and returns why it ended when all
// handshakes have.
func (g *greeter) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for {
		conn, err := g.sock.Accept()
		if err != nil {
			return err
		}
		group.Go(func() { g.greet(ctx, conn) })
	}
}

func (g *greeter) greet(ctx context.Context, raw net.Conn) {
	v, through := raw.(*visitor)
	if through {
		v.greeting.Store(true)
	}
	conn := tls.Server(raw, g.config)
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		// Any port scan causes it.
		g.log.V(2).Info("TLS handshake failed", "address", raw.RemoteAddr().String(), "err", err)
		var record tls.RecordHeaderError
		if errors.As(err, &record) && record.Conn != nil && looksLikeHTTP(record.RecordHeader) {
			_ = raw.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(raw, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
		}
		_ = raw.Close()
		return
	}
	if through {
		v.greeting.Store(false)
	}
	to := g.unknown
	certs := conn.ConnectionState().PeerCertificates
	if g.knows(certs) && (!through || v.certify(certs[0].Subject.CommonName)) {
		to = g.certified
	}
	to.put(conn)
}

// looksLikeHTTP says whether what should be a TLS record begins a request.
func looksLikeHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

// knows says whether certificates lead to the CA of clients as it is now.
// Requests are still verified one by one.
func (t *TLS) knows(certs []*x509.Certificate) bool {
	if t.ClientCA == nil || len(certs) == 0 {
		return false
	}
	options, ok := t.ClientCA.VerifyOptions()
	if !ok {
		return false
	}
	options.Intermediates = x509.NewCertPool()
	for _, c := range t.ClientCA.Chain(certs)[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := certs[0].Verify(options)
	return err == nil
}

// queue is a listener at which connections arrive that are open already.
type queue struct {
	addr  net.Addr
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

func (q *queue) put(conn net.Conn) {
	select {
	case q.conns <- conn:
	case <-q.done:
		_ = conn.Close()
	}
}

// Accept implements net.Listener.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return q.addr }
