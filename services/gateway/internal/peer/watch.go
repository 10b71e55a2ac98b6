// Package peer is how the gateway speaks with the other four processes: typed
// clients behind the interfaces that its handlers declare. It owns the mapping
// to protos; it must never answer HTTP.
package peer

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/service"
)

// stateful is what a *grpc.ClientConn is beside a ClientConnInterface.
type stateful interface {
	GetState() connectivity.State
	WaitForStateChange(ctx context.Context, s connectivity.State) bool
	Connect()
}

// Watch keeps the connection open and reports its readiness until ctx is done; came is
// called whenever there is another one, which each run of the process has.
// Connections that do not tell their state are left alone.
func Watch(ctx context.Context, name string, conn grpc.ClientConnInterface, to health.Reporter, came func()) {
	c, ok := conn.(stateful)
	if !ok {
		return
	}
	for {
		state := c.GetState()
		switch state {
		case connectivity.Idle:
			c.Connect()
		case connectivity.Ready:
			came()
			to.Set(name, true, "")
		case connectivity.TransientFailure:
			to.Set(name, false, name+"'s socket cannot be reached; until it is back "+without(name))
		case connectivity.Connecting, connectivity.Shutdown:
		}
		if !c.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// without says what clients get while a process is away.
func without(name string) string {
	if name == service.Nodestatus {
		return "the apiserver is not asked who may do what: on the secure port tokens get 401 and requests 500, but for answers that are kept; the node's logs get 503"
	}
	return "what it serves is answered with 503"
}
