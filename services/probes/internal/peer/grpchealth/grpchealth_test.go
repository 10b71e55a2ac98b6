package grpchealth

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
)

// client asks a server that serves what register puts on it.
func client(t *testing.T, register func(*grpc.Server)) *Client {
	t.Helper()
	listener, server := bufconn.Listen(1<<20), grpc.NewServer()
	register(server)
	go func() { _ = server.Serve(listener) }()
	conn, err := listener.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Address: "10.0.0.1:80", UserAgent: "kube-probe/1.36", AnswerLimit: 64 << 10}, conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); server.Stop() })
	return c
}

func TestAServerSaysHowEachOfItsServicesIs(t *testing.T) {
	c := client(t, func(s *grpc.Server) {
		h := health.NewServer()
		h.SetServingStatus("ill", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		grpc_health_v1.RegisterHealthServer(s, h)
	})
	for service, want := range map[string]string{"": "SERVING", "ill": "NOT_SERVING"} {
		if serving, said, err := c.Check(t.Context(), service); err != nil || said != want || serving != (want == "SERVING") {
			t.Errorf("%q: %v, %q, %v", service, serving, said, err)
		}
	}
	var failed *Error
	if _, _, err := c.Check(t.Context(), "unknown"); !errors.As(err, &failed) || failed.Unimplemented || failed.Late || failed.Message != "unknown service" {
		t.Errorf("%#v", err)
	}
}

func TestAServerWithoutTheProtocolIsToldFromOneThatDoesNotAnswer(t *testing.T) {
	var failed *Error
	c := client(t, func(*grpc.Server) {})
	if _, _, err := c.Check(t.Context(), ""); !errors.As(err, &failed) || !failed.Unimplemented || !strings.Contains(failed.Message, "unknown service grpc.health.v1.Health") {
		t.Errorf("%#v", err)
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if _, _, err := c.Check(ctx, ""); !errors.As(err, &failed) || !failed.Late || failed.Unimplemented {
		t.Errorf("%#v", err)
	}
}
