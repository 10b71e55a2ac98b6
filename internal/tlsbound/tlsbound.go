// Package tlsbound bounds what a server that nobody knows may send for a TLS handshake.
// crypto/tls takes a quarter of a megabyte of certificates and holds, parsed, ten times
// as much as long as the connection lasts. It must never decide whom to trust.
package tlsbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
)

const (
	// longestHandshake is how many bytes a server may send until hands are shaken: its
	// certificates, and the authorities of clients that it knows.
	longestHandshake = 64 << 10
	// mostCertificates are how many it may show.
	mostCertificates = 10
)

var errTooLong = errors.New("the server sends more than 64 KiB for the TLS handshake")

// Dial makes connections to servers, as http.Transport.DialTLSContext is to: those of dial
// with TLS on them. The configuration is the transport's; its VerifyPeerCertificate is
// taken.
func Dial(dial func(ctx context.Context, network, address string) (net.Conn, error), config *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
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
		own.ServerName, own.VerifyPeerCertificate = host, few
		below := &bounded{Conn: raw}
		conn := tls.Client(below, own)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, err
		}
		below.over.Store(true)
		return conn, nil
	}
}

func few(certs [][]byte, _ [][]*x509.Certificate) error {
	if len(certs) > mostCertificates {
		return fmt.Errorf("the server shows %d certificates, %d at most are read", len(certs), mostCertificates)
	}
	return nil
}

// bounded is a connection on which hands are being shaken.
type bounded struct {
	net.Conn
	came int // by who shakes hands
	over atomic.Bool
}

// Read implements net.Conn.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if b.over.Load() {
		return n, err
	}
	if b.came += n; b.came > longestHandshake {
		return 0, errTooLong
	}
	return n, err
}
