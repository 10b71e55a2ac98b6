// Package dialctx ends a dial, and the connection that it made, with the request that it
// is for. net/http detaches dials from the contexts of requests, as others might use their
// connections: one to a server that accepts and says no more would be open, and a handshake
// under way, for ever after. And it has the kernel keep little of a connection that was
// closed. It must never end what another request uses: it is for transports that keep no
// connection alive.
package dialctx

import (
	"context"
	"net"
	"time"
)

// closingTime is how long net/http has to end a connection in order when its request is over.
const closingTime = time.Second

type requestKey struct{}

// Dial is net.Dialer.DialContext, and http.Transport.DialTLSContext.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// With returns the context for a request, whose dials end at the latest when cancel is
// called; that must be when the request is over.
func With(ctx context.Context) (request context.Context, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(ctx)
	return context.WithValue(ctx, requestKey{}, ctx), cancel
}

// Ending returns a dial that ends with the context of With, where net/http has it from one.
func Ending(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		request, ok := ctx.Value(requestKey{}).(context.Context)
		if !ok {
			return dial(ctx, network, address)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(request, cancel)()
		return dial(ctx, network, address)
	}
}

// Closing returns a dial whose connections are closed soon after the context of With, where
// net/http has it from one. Over HTTP/2 net/http does so itself only when it can say to the
// server that the request is over, and that one may read nothing. It goes below TLS, which
// is not held while it waits.
func Closing(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if request, ok := ctx.Value(requestKey{}).(context.Context); ok && err == nil {
			context.AfterFunc(request, func() {
				time.AfterFunc(closingTime, func() { _ = conn.Close() })
			})
		}
		return conn, err
	}
}
