package session

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// lingerFor is how long a client may take to read the last of a session.
const lingerFor = time.Minute

// halfCloser is a connection that can say its end and still be read.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// linger says the end of a session to its client at once, and closes the
// connection when the client has closed its own, or has had its time. It does not
// wait for that. What a client sends to a connection that is closed already (a
// SPDY ping, say) resets it, and with it goes what the system has not delivered
// yet: the last megabyte of an output, which then looks whole.
func linger(c net.Conn) error {
	below := c
	encrypted, isTLS := c.(*tls.Conn)
	if isTLS {
		below = encrypted.NetConn()
	}
	half, ok := below.(halfCloser)
	if !ok {
		return c.Close()
	}
	// Who still reads the connection is woken by this, too.
	if err := c.SetDeadline(time.Now().Add(lingerFor)); err != nil {
		return errors.Join(err, c.Close())
	}
	go func() {
		defer c.Close()
		if isTLS && encrypted.CloseWrite() != nil {
			return
		}
		if half.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, half) // it is only taken away
		}
	}()
	return nil
}
