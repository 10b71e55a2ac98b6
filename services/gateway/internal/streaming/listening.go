package streaming

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync/atomic"
)

// listening is a connection to the runtime that is read to its end whatever
// becomes of writing to it. A runtime whose command has ended closes it, and
// takes no notice of what is still being sent; the proxies end both directions
// once one has failed, and what the command had said last would be lost.
type listening struct {
	net.Conn
	peerClosed atomic.Bool // the other side takes nothing any more
}

// listen makes the transport's connections such; onEnd is called when the runtime
// says the end of one itself.
func listen(t *http.Transport, onEnd func()) {
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &listening{Conn: answerPings(conn, onEnd)}, nil
	}
}

// Write drops what cannot be sent any more: Read tells of the end.
func (c *listening) Write(p []byte) (int, error) {
	if c.peerClosed.Load() {
		return len(p), nil
	}
	n, err := c.Conn.Write(p)
	if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	c.peerClosed.Store(true)
	return len(p), nil
}
