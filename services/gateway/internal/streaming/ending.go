package streaming

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ending notes which side of a session was the first to go. Its connections
// look at errors, and at who spoke last, so they cost nothing while bytes flow.
//
// A runtime that closes its connection has told how the command ended just
// before. If the client spoke last it may have sent its end, which the runtime
// answers so: it counts as one that has left. To look for the command of one
// that has not finds nothing; not to look would leave something.
type ending struct {
	// tell is Opened.Over; it may be nil.
	tell   func(clientLeft bool)
	cancel context.CancelFunc
	// frames says that the client's WebSocket is translated here.
	frames bool

	clientSpoke atomic.Bool // last
	clientGone  atomic.Bool // its connection has ended
	endSent     atomic.Bool // the client was told that the session has ended
	closing     sync.Once   // of the client's connection

	first      sync.Once
	clientLeft bool // after first
}

// end notes that the session has ended, if the client was not first.
func (e *ending) end() { e.first.Do(func() {}) }

// spoke notes who did. Most often that is who did before.
func (e *ending) spoke(client bool) {
	if e.clientSpoke.Load() != client {
		e.clientSpoke.Store(client)
	}
}

// left notes that the client was the first, tells so, and ends the session: the
// translator does not look for its client while the command says nothing. It
// returns when that is done; until then nobody closes the connection to the
// runtime.
func (e *ending) left() {
	e.first.Do(func() {
		e.clientLeft = true
		if e.tell != nil {
			e.tell(true)
		}
		e.cancel()
	})
}

// over tells how the session ended, unless that is told already.
func (e *ending) over() {
	e.end()
	if !e.clientLeft && e.tell != nil {
		e.tell(false)
	}
}

// watch returns the request and its answer for a session that ends when its
// client leaves. cancel frees what that takes.
func (e *ending) watch(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	e.cancel = cancel
	return watched{w, e}, r.WithContext(ctx), cancel
}

// transport is the one to the runtime.
func (e *ending) transport() http.RoundTripper {
	t := transport(func() { e.endSent.Store(true) })
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return runtimeSide{conn, e}, nil
	}
	return t
}

// watched is an answer whose connection is watched once it is taken over.
type watched struct {
	http.ResponseWriter
	end *ending
}

// Unwrap lets http.ResponseController see what is below.
func (w watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w watched) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	client := clientSide{conn, w.end}
	// The buffers read and write the connection itself: they get this one, and
	// what they hold already.
	var from io.Reader = client
	if n := buffered.Reader.Buffered(); n > 0 {
		held, _ := buffered.Reader.Peek(n) // they are there
		from = io.MultiReader(bytes.NewReader(bytes.Clone(held)), client)
	}
	if w.end.frames {
		from = &shortFrames{from: from}
	}
	buffered.Reader.Reset(from)
	buffered.Writer.Reset(client)
	return client, buffered, nil
}

// clientSide is the connection of the client.
type clientSide struct {
	net.Conn
	end *ending
}

// Read notes a client that has left.
func (c clientSide) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.end.clientGone.Store(true)
		c.end.left()
	} else {
		c.end.spoke(true)
	}
	return n, err
}

// Write notes a client that has left.
func (c clientSide) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.end.clientGone.Store(true)
		c.end.left()
	}
	return n, err
}

// Close comes after the runtime's end, or after a WebSocket's close frame.
func (c clientSide) Close() error {
	c.end.left()
	if c.end.clientGone.Load() {
		return c.Conn.Close()
	}
	var err error
	c.end.closing.Do(func() {
		timeout := time.Duration(0)
		if c.end.endSent.Load() {
			timeout = endTimeout
		}
		err = linger(c.Conn, timeout)
	})
	return err
}

// runtimeSide is the connection to the runtime, which ends it with the command.
type runtimeSide struct {
	net.Conn
	end *ending
}

// Read notes the end of the command.
func (c runtimeSide) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case err == nil:
		c.end.spoke(false)
	case c.end.clientSpoke.Load():
		c.end.left()
	default:
		c.end.end()
	}
	return n, err
}

// Close notes the end of the session, if the client was not first.
func (c runtimeSide) Close() error {
	c.end.end()
	return c.Conn.Close()
}
