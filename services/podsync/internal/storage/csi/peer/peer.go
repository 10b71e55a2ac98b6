// Package peer speaks with one CSI driver of the node at its socket. It owns how much a
// driver may say, and what of the CSI spec's messages and codes the rest sees; it must
// never decide what becomes of a volume, and sets no deadline: its caller does.
// Source: https://github.com/container-storage-interface/spec/blob/master/spec.md
package peer

import (
	"context"
	"net"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// mostOfAnAnswer is how much of a driver's answer, and of its error, is read, in bytes.
const mostOfAnAnswer = 64 << 10

// Conn is a connection with a driver.
type Conn interface {
	grpc.ClientConnInterface
	Close() error
}

// Driver asks one driver; safe for concurrent use. Its errors are the driver's, see Final.
type Driver struct {
	conn Conn
	node csi.NodeClient
}

// Call is one of a driver that has ended.
type Call struct {
	// Method and Code are gRPC's words.
	Method, Code string
	// Exhausted: the driver lacks what it takes.
	Exhausted bool
	// Info: it was Driver.Info.
	Info bool
	Took time.Duration
}

// New returns a Driver at the other end of a connection, which it closes in the end. called
// is told of each call that has ended.
func New(conn Conn, called func(context.Context, Call)) *Driver {
	return &Driver{conn, csi.NewNodeClient(counted{conn, called})}
}

// connects is a connection that says how it stands.
type connects interface {
	GetState() connectivity.State
	Connect()
	WaitForStateChange(ctx context.Context, from connectivity.State) bool
}

// Connect waits until there is a connection, and says whether there is: not once ctx is done or
// the Driver is closed.
func (d *Driver) Connect(ctx context.Context) bool {
	c, says := d.conn.(connects)
	if !says {
		return true
	}
	for {
		state := c.GetState()
		switch state {
		case connectivity.Ready:
			return true
		case connectivity.Shutdown:
			return false
		case connectivity.Idle:
			c.Connect()
		}
		if !c.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

// Close ends the connection.
func (d *Driver) Close() { _ = d.conn.Close() }

// Dial returns a connection with the driver at a socket; it connects when it is used.
func Dial(socket string) (Conn, error) {
	return grpc.NewClient("passthrough:///csi", append(rpc.Bounded(mostOfAnAnswer),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: .2, MaxDelay: time.Second},
			MinConnectTimeout: 10 * time.Second,
		}),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(time.Minute),
		grpc.WithReadBufferSize(4<<10),
		grpc.WithWriteBufferSize(4<<10),
	)...)
}

// counted tells of each call that has ended.
type counted struct {
	Conn
	called func(context.Context, Call)
}

// Invoke implements grpc.ClientConnInterface.
func (c counted) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
	began := time.Now()
	err := c.Conn.Invoke(ctx, method, req, reply, opts...)
	code := status.Code(err)
	c.called(ctx, Call{
		Method: method, Code: named(code), Exhausted: code == codes.ResourceExhausted, Info: method == csi.Node_NodeGetInfo_FullMethodName,
		Took: time.Since(began),
	})
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return podstate.VolumeDriverSilent.Wrap(err)
	}
	return podstate.VolumeDriverRefused.Wrap(err)
}

// named is a code's name. A driver may send any number, and each would be a series.
func named(code codes.Code) string {
	if code > codes.Unauthenticated {
		return codes.Unknown.String()
	}
	return code.String()
}
