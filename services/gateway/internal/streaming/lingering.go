package streaming

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

const (
	// endTimeout is how long a client that was told that its session has ended
	// may take to close the connection itself.
	endTimeout = 30 * time.Second
	// lingerFor is how long any client may take to read the last of a session.
	lingerFor = time.Minute
)

// halfCloser is a connection that can say its end and still be read.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// linger ends the connection of a client when the client has closed its own. After
// timeout it says the end, and closes when the client has had its time. It does
// not wait for that.
//
// What a client sends to a connection that is closed already (a ping, say) resets
// it, and with it goes what the system has not delivered yet: the last megabytes
// of an output, which then looks whole. The apiserver in between closes as soon as
// it has seen the end, and its client is as slow; a client that knows that its
// session has ended closes without seeing the end.
func linger(c net.Conn, timeout time.Duration) error {
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
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return errors.Join(err, c.Close())
	}
	go func() {
		defer c.Close()
		if _, err := io.Copy(io.Discard, half); err == nil { // it is only taken away
			return
		}
		if c.SetDeadline(time.Now().Add(lingerFor)) != nil {
			return
		}
		if isTLS {
			_ = encrypted.CloseWrite() // it has 5 s; without its word the end is one all the same
		}
		if half.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, half)
		}
	}()
	return nil
}
