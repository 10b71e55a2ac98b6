package handler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// grpc succeeds when the server answers SERVING.
func (h *Handlers) grpc(ctx context.Context, t probe.Target, a probe.GRPC) probe.Answer {
	addr, wrong := address("", t.PodIP, a.Port, "")
	if wrong != "" {
		return errored("%s", wrong)
	}
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	// The connection is made before gRPC comes in, so that a port on which
	// nobody listens is told from a server that does not answer.
	conn, err := receiving(dial(t.Timeout), mostOfGRPC)(ctx, "tcp", addr)
	if err != nil {
		return h.unconnected(err, fmt.Sprintf("timeout: failed to connect service %q within %v: %v", addr, t.Timeout, err))
	}
	client, err := h.grpcClient(addr, conn)
	if err != nil {
		_ = conn.Close()
		return errored("making a gRPC client for %s: %v", addr, err)
	}
	defer client.Close()
	res, err := grpc_health_v1.NewHealthClient(client).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: a.Service})
	if err != nil {
		return grpcError(t, err)
	}
	if res.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return failed(fmt.Sprintf("service unhealthy (responded with %q)", res.GetStatus().String()))
	}
	return probe.Answer{Verdict: probe.Passed, Message: "service healthy"}
}

// grpcClient speaks over conn and, when that is lost, over nothing.
func (h *Handlers) grpcClient(addr string, conn net.Conn) (*grpc.ClientConn, error) {
	var once sync.Once
	return grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(h.cfg.UserAgent),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithNoProxy(),
		grpc.WithMaxHeaderListSize(answerLimit),
		grpc.WithStaticStreamWindowSize(answerLimit),
		grpc.WithStaticConnWindowSize(answerLimit),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerLimit)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			var out net.Conn
			once.Do(func() { out = conn })
			if out == nil {
				return nil, errors.New("the connection was lost")
			}
			return out, nil
		}))
}

func grpcError(t probe.Target, err error) probe.Answer {
	switch status.Code(err) {
	case codes.Unimplemented:
		return failed(fmt.Sprintf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", status.Convert(err).Message()))
	case codes.DeadlineExceeded:
		return failed(fmt.Sprintf("timeout: health rpc did not complete within %v", t.Timeout))
	default:
		return failed(fmt.Sprintf("error: health rpc probe failed: %v", err))
	}
}
