// Package listen opens the gateway's ports and serves on them. It owns sockets,
// limits and TLS; it must never know a path.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/services/gateway/internal/pki"
)

// stopTimeout is how long requests in flight may go on after a stop began.
const stopTimeout = 2 * time.Second

// openAgain is how long an optional port waits before it is tried again.
const openAgain = 5 * time.Second

// Limits of a port.
type Limits struct {
	// Connections is how many may be open at once; Strangers is how many of
	// them may be by clients that nobody has authorised (see Trust).
	Connections, Strangers int
	// Header is how long a client may take for the TLS handshake and for a
	// request's header, Body for a request and for an answer, Idle between two.
	Header, Body, Idle time.Duration
	// HeaderBytes is how large a request's header may be.
	HeaderBytes int
}

// DefaultLimits are the kubelet's where it has any. The number of connections
// and the time for a header are ours: the kubelet bounds neither.
func DefaultLimits() Limits {
	return Limits{
		Connections: 4096, Strangers: 256,
		Header: 30 * time.Second, Body: 4 * time.Hour, Idle: 90 * time.Second, HeaderBytes: 1 << 20,
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
	server  *http.Server
	mu      sync.Mutex
	bound   net.Addr
	ready   chan struct{}
	tried   sync.Once
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
	l.server = &http.Server{
		Handler:           cfg.Handler,
		ReadHeaderTimeout: cfg.Limits.Header,
		ReadTimeout:       cfg.Limits.Body,
		WriteTimeout:      cfg.Limits.Body,
		IdleTimeout:       cfg.Limits.Idle,
		MaxHeaderBytes:    cfg.Limits.HeaderBytes,
		ConnContext:       withVisitor,
	}
	return l
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
	log := logr.FromContextOrDiscard(ctx).WithValues("listener", l.Name)
	sock, err := l.open(ctx)
	if sock == nil {
		return err
	}
	sock = &door{Listener: sock, most: l.limits.Connections, mostStrangers: l.limits.Strangers, dropped: l.dropped}
	l.mu.Lock()
	l.bound = sock.Addr()
	l.mu.Unlock()
	l.tried.Do(func() { close(l.ready) })
	log.Info("Serving", "address", sock.Addr().String(), "tls", l.tls != nil)
	l.server.ErrorLog = errorLog(log)
	l.server.BaseContext = func(net.Listener) context.Context {
		// Requests outlive ctx by stopTimeout, so that an orderly stop cuts few.
		return logr.NewContext(context.WithoutCancel(ctx), log)
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		l.shutDown()
	})
	err = l.serve(sock)
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

func (l *Listener) serve(sock net.Listener) error {
	if l.tls == nil {
		return l.server.Serve(sock)
	}
	l.server.TLSConfig = l.tls.config()
	return l.server.ServeTLS(sock, "", "")
}

func (l *Listener) shutDown() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if l.server.Shutdown(ctx) != nil {
		_ = l.server.Close()
	}
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
	base := c.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs = t.ClientCA.Pool()
		return now, nil
	}
	return c
}

// errorLog passes on what net/http has to say, without what any port scan causes.
func errorLog(l logr.Logger) *log.Logger {
	return log.New(writer(func(line string) {
		if strings.Contains(line, "TLS handshake error") {
			l.V(2).Info("TLS handshake failed", "reason", line)
			return
		}
		l.Info("HTTP server reports", "message", line)
	}), "", 0)
}

type writer func(string)

func (w writer) Write(p []byte) (int, error) {
	w(strings.TrimSpace(string(p)))
	return len(p), nil
}
