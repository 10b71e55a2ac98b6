// Package grpchealth asks a container's server for its health over gRPC
// (grpc.health.v1). It owns how such a server is spoken to and how much it may say; it
// must never decide what its answer means for a probe.
package grpchealth

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/rpc"
)

// Config of a Client; every field is needed.
type Config struct {
	// Address is the server's, as host:port.
	Address string
	// UserAgent is what the client calls itself.
	UserAgent string
	// AnswerLimit bounds the header and the message of an answer, and what comes without
	// being asked for, in bytes.
	AnswerLimit int32
}

// Client asks one server. See New.
type Client struct {
	conn   *grpc.ClientConn
	health grpc_health_v1.HealthClient
}

// New returns a Client that speaks over conn and, when that is lost, over nothing. Close
// closes conn once it was used.
func New(cfg Config, conn net.Conn) (*Client, error) {
	var once sync.Once
	c, err := grpc.NewClient("passthrough:///"+cfg.Address, append(rpc.Bounded(cfg.AnswerLimit),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(cfg.UserAgent),
		grpc.WithDisableRetry(),
		grpc.WithNoProxy(),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			var out net.Conn
			once.Do(func() { out = conn })
			if out == nil {
				return nil, errors.New("the connection was lost")
			}
			return out, nil
		}))...)
	if err != nil {
		return nil, err
	}
	return &Client{c, grpc_health_v1.NewHealthClient(c)}, nil
}

// Close ends the connection.
func (c *Client) Close() { _ = c.conn.Close() }

// Error is why a server has not said how it is, in gRPC's words.
type Error struct {
	// Unimplemented: the server does not serve grpc.health.v1. Late: it did not answer
	// within ctx.
	Unimplemented, Late bool
	// Message is the server's part of it.
	Message string

	err error
}

// Error implements error.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap is for package errors.
func (e *Error) Unwrap() error { return e.err }

// Check asks for the health of a service of the server's, or its own when it is empty.
// said is the answer in gRPC's words. An error is an *Error.
func (c *Client) Check(ctx context.Context, service string) (serving bool, said string, err error) {
	res, err := c.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		code := status.Code(err)
		return false, "", &Error{
			Unimplemented: code == codes.Unimplemented, Late: code == codes.DeadlineExceeded, Message: status.Convert(err).Message(), err: err,
		}
	}
	return res.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING, res.GetStatus().String(), nil
}
