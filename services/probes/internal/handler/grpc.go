package handler

import (
	"context"
	"errors"
	"fmt"

	"github.com/polylet/polylet/services/probes/internal/peer/grpchealth"
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
	client, err := grpchealth.New(grpchealth.Config{Address: addr, UserAgent: h.cfg.UserAgent, AnswerLimit: answerLimit}, conn)
	if err != nil {
		_ = conn.Close()
		return errored("making a gRPC client for %s: %v", addr, err)
	}
	defer client.Close()
	serving, said, err := client.Check(ctx, a.Service)
	switch why := (*grpchealth.Error)(nil); {
	case errors.As(err, &why) && why.Unimplemented:
		return failed(fmt.Sprintf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", why.Message))
	case errors.As(err, &why) && why.Late:
		return failed(fmt.Sprintf("timeout: health rpc did not complete within %v", t.Timeout))
	case err != nil:
		return failed(fmt.Sprintf("error: health rpc probe failed: %v", err))
	case !serving:
		return failed(fmt.Sprintf("service unhealthy (responded with %q)", said))
	}
	return probe.Answer{Verdict: probe.Passed, Message: "service healthy"}
}
