// Package listen opens the gateway's ports and serves on them. It owns sockets,
// limits and TLS; it must never know a path.
package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/gateway/internal/pki"
)

// stopTimeout is how long requests in flight may go on after a stop began.
const stopTimeout = 2 * time.Second

// openAgain is how long an optional port waits before it is tried again.
const openAgain = 5 * time.Second

// Limits of a port.
type Limits struct {
	// Connections is how many may be open at once; Unknown is how many of
	// them may be by clients that nobody has authorised (see Trust), KnownOfOne
	// how many of one address count as known; what is more stays unknown.
	Connections, Unknown, KnownOfOne int
	// Header is how long a client may take for the TLS handshake and for a
	// request's header, Body for a request and for an answer, Idle between two.
	Header, Body, Idle time.Duration
	// HeaderBytes is how large a request's header may be: a command's arguments
	// stand in it. UnknownHeaderBytes is that of clients without a good
	// certificate, and PlainHeaderBytes of all where there is no TLS: no commands are
	// run there.
	HeaderBytes, UnknownHeaderBytes, PlainHeaderBytes int
	// UnknownStreams is how many requests such a client may have under way on
	// one HTTP/2 connection.
	UnknownStreams int
}

// DefaultLimits are the kubelet's where it has any. The number of connections
// and the time for a header are ours: the kubelet bounds neither.
func DefaultLimits() Limits {
	return Limits{
		Connections: 4096, Unknown: 256, KnownOfOne: 512,
		Header: 30 * time.Second, Body: 4 * time.Hour, Idle: 90 * time.Second,
		HeaderBytes: 1 << 20, UnknownHeaderBytes: 64 << 10, PlainHeaderBytes: 16 << 10, UnknownStreams: 16,
	}
}

// TLS is what the secure port speaks.
type TLS struct {
	Serving *pki.Serving
	// ClientCA may be nil; then no client certificate is asked for.
	ClientCA *pki.ClientCA
	// MinVersion, CipherSuites and Curves are crypto/tls's; zero is its default.
	MinVersion   uint16
	CipherSuites []uint16
	Curves       []tls.CurveID
}

// Listener is one port. See New.
type Listener struct {
	// Name is secure, read-only or healthz.
	Name string

	address string
	tls     *TLS
	limits  Limits
	dropped func()
	// certified serves clients with a good certificate, server all others.
	server, certified *http.Server
	mu                sync.Mutex
	bound             net.Addr
	ready             chan struct{}
	tried             sync.Once
	// missing is told that an optional port cannot be opened, and nil when it
	// is; nil for a port that must open.
	missing func(error)
}

// Optional says that the process goes on when the port cannot be opened: missing
// is told why, the port is tried again, and missing is told nil when it is open.
// Ready then means that it was tried.
func (l *Listener) Optional(missing func(error)) *Listener {
	l.missing = missing
	return l
}

// Config describes a port.
type Config struct {
	// Name is secure, read-only or healthz.
	Name string
	// Address is host:port.
	Address string
	Handler http.Handler
	// TLS is nil for plain HTTP.
	TLS    *TLS
	Limits Limits
	// Dropped is told of each connection that was closed for want of a place;
	// nil tells nobody.
	Dropped func()
}

// New describes a port. It opens nothing.
func New(cfg Config) *Listener {
	l := &Listener{Name: cfg.Name, address: cfg.Address, tls: cfg.TLS, limits: cfg.Limits, dropped: cfg.Dropped, ready: make(chan struct{})}
	if l.dropped == nil {
		l.dropped = func() {}
	}
	unknown := cfg.Limits.UnknownHeaderBytes
	if cfg.TLS == nil {
		unknown = cfg.Limits.PlainHeaderBytes
	}
	l.server = server(cfg, unknown)
	l.server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: cfg.Limits.UnknownStreams, MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 128 << 10,
	}
	l.certified = server(cfg, cfg.Limits.HeaderBytes)
	return l
}

func server(cfg Config, headerBytes int) *http.Server {
	return &http.Server{
		Handler:           cfg.Handler,
		ReadHeaderTimeout: cfg.Limits.Header,
		ReadTimeout:       cfg.Limits.Body,
		WriteTimeout:      cfg.Limits.Body,
		IdleTimeout:       cfg.Limits.Idle,
		MaxHeaderBytes:    headerBytes,
		ConnContext:       withVisitor,
	}
}

// Address is host:port, with the real port once it is open.
func (l *Listener) Address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bound != nil {
		return l.bound.String()
	}
	return l.address
}

// Ready is closed once the port is open.
func (l *Listener) Ready() <-chan struct{} { return l.ready }

// CertificateNotAfter is when the serving certificate ends; zero without TLS.
func (l *Listener) CertificateNotAfter() time.Time {
	if l.tls == nil {
		return time.Time{}
	}
	return l.tls.Serving.NotAfter()
}

// Run serves until ctx is done; nil then. A port that cannot be opened is an error.
func (l *Listener) Run(ctx context.Context) error {
	log := klog.FromContext(ctx).WithValues("listener", l.Name)
	sock, err := l.open(ctx)
	if sock == nil {
		return err
	}
	sock = newDoor(onlyLocal(newRetrying(sock, log), l.dropped), l.limits, l.dropped)
	l.mu.Lock()
	l.bound = sock.Addr()
	l.mu.Unlock()
	l.tried.Do(func() { close(l.ready) })
	log.Info("Serving", "address", sock.Addr().String(), "tls", l.tls != nil)
	for _, s := range l.servers() {
		s.ErrorLog = errorLog(log)
		s.BaseContext = func(net.Listener) context.Context {
			// Requests outlive ctx by stopTimeout, so that an orderly stop cuts few.
			return logr.NewContext(context.WithoutCancel(ctx), log)
		}
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		if l.tls != nil {
			_ = sock.Close() // else the server's own, which tells why it ends
		}
		l.shutDown()
	})
	err = l.serve(ctx, sock, log)
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the %s port at %s: %w", l.Name, sock.Addr(), err)
	}
	<-stopped
	return nil
}

// open opens the port. Without a socket and an error, ctx is done.
func (l *Listener) open(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	for {
		sock, err := config.Listen(ctx, "tcp", l.address)
		switch {
		case err == nil:
			if l.missing != nil {
				l.missing(nil)
			}
			return sock, nil
		case l.missing == nil:
			return nil, fmt.Errorf("opening the %s port: %w: free the address, or choose another", l.Name, err)
		case ctx.Err() != nil:
			return nil, nil
		}
		l.missing(err)
		l.tried.Do(func() { close(l.ready) })
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(openAgain):
		}
	}
}

func (l *Listener) servers() []*http.Server { return []*http.Server{l.server, l.certified} }

// serve serves until shutDown; http.ErrServerClosed then.
func (l *Listener) serve(ctx context.Context, sock net.Listener, log logr.Logger) error {
	if l.tls == nil {
		return l.server.Serve(sock)
	}
	g := &greeter{
		sock: sock, config: l.tls.config(), knows: l.tls.knows, timeout: l.limits.Header, log: log,
		certified: newQueue(sock.Addr()), unknown: newQueue(sock.Addr()),
	}
	var group sync.WaitGroup
	group.Go(func() { _ = l.server.Serve(g.unknown) })
	group.Go(func() { _ = l.certified.Serve(g.certified) })
	err := g.run(ctx)
	if ctx.Err() == nil {
		// The socket failed: nobody else ends the servers.
		l.shutDown()
	} else {
		err = http.ErrServerClosed
	}
	group.Wait()
	return err
}

func (l *Listener) shutDown() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var group sync.WaitGroup
	for _, s := range l.servers() {
		group.Go(func() {
			if s.Shutdown(ctx) != nil {
				_ = s.Close()
			}
		})
	}
	group.Wait()
}

func (t *TLS) config() *tls.Config {
	c := &tls.Config{
		GetCertificate:   t.Serving.GetCertificate,
		MinVersion:       tls.VersionTLS12,
		CipherSuites:     t.CipherSuites,
		CurvePreferences: t.Curves,
		NextProtos:       []string{"h2", "http/1.1"},
	}
	if t.MinVersion != 0 {
		c.MinVersion = t.MinVersion
	}
	if t.ClientCA == nil {
		return c
	}
	// Asked for, not required: a caller may show a token instead. The chain is
	// verified with the request, by the authenticator.
	c.ClientAuth = tls.RequestClientCert
	c.VerifyPeerCertificate = short
	base := c.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs = t.ClientCA.Pool()
		return now, nil
	}
	return c
}

// mostCertificates are how many a client may show: they are held while it is connected.
const mostCertificates = 10

func short(certs [][]byte, _ [][]*x509.Certificate) error {
	if len(certs) > mostCertificates {
		return fmt.Errorf("the client shows %d certificates, %d at most are read", len(certs), mostCertificates)
	}
	return nil
}
