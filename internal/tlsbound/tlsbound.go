// Package tlsbound bounds what servers that nobody knows may send for TLS handshakes.
// crypto/tls takes a quarter of a megabyte of certificates and holds, parsed, ten times
// as much as long as the connection lasts. It must never decide whom to trust, and refuses
// no server for what it sends: of those that send much, few are connected at once.
package tlsbound

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/polylet/polylet/internal/slots"
)

const (
	// shortHandshake is how many bytes any server may send until hands are shaken: its
	// certificates, and the authorities of clients that it knows.
	shortHandshake = 16 << 10
	// mostLong is how many bytes all connections may have taken beyond that, within the
	// bounds of crypto/tls, and mostLongOfOne how many those of one may: who serves a
	// whole bundle of authorities with its certificate is served as well, a few at a time.
	mostLong, mostLongOfOne = 2 << 20, 512 << 10
)

// ErrBusy says that a server sends much and that there are too many connections to such
// servers. It is the node's lack, not a fault of the server; the request was not sent.
var ErrBusy = errors.New("the server's TLS handshake is longer than 16 KiB, and the node reads few such at once: send fewer certificates")

type whoseKey struct{}

// For returns the context for a request of this one, which shares a bound with its others.
func For(ctx context.Context, whose string) context.Context {
	return context.WithValue(ctx, whoseKey{}, whose)
}

// Dial makes connections to servers, as http.Transport.DialTLSContext is to: those of dial
// with TLS on them. The configuration is the transport's. Connections of one Dial share
// its bounds, and those without For one part of them.
func Dial(dial func(ctx context.Context, network, address string) (net.Conn, error), config *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	long := slots.New(mostLong, mostLongOfOne)
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		own := config.Clone()
		own.ServerName = host
		whose, _ := ctx.Value(whoseKey{}).(string)
		below := &bounded{Conn: raw, long: long, whose: whose}
		conn := tls.Client(below, own)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = below.Close()
			return nil, err
		}
		below.over.Store(true)
		return conn, nil
	}
}

// bounded is a connection on which hands are being shaken.
type bounded struct {
	net.Conn
	long  *slots.Slots
	whose string
	came  int // by who shakes hands
	over  atomic.Bool

	mu     sync.Mutex
	closed bool
	taken  int // of long
}

// Read implements net.Conn.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if b.over.Load() {
		return n, err
	}
	if b.came += n; b.came > shortHandshake && !b.take(b.came-shortHandshake) {
		return 0, ErrBusy
	}
	return n, err
}

// take says whether the connection may take so many bytes more than others.
func (b *bounded) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || !b.long.Take(b.whose, n-b.taken) {
		return false
	}
	b.taken = n
	return true
}

// Close implements net.Conn.
func (b *bounded) Close() error {
	b.mu.Lock()
	b.closed = true
	b.long.GiveBack(b.whose, b.taken)
	b.taken = 0
	b.mu.Unlock()
	return b.Conn.Close()
}
