package grpctest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/testkit/grpctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func register(s *grpc.Server) { healthpb.RegisterHealthServer(s, health.NewServer()) }

func TestAServerAnswersInABubbleAndEndsWithTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := grpctest.Serve(t, register)
		resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Fatalf("%v, %v", resp, err)
		}
	})
}

func TestAClientComesBackAfterTheServerWasDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := grpctest.New(register)
		defer s.Close()
		conn, err := s.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client := healthpb.NewHealthClient(conn)
		s.Down()
		if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
			t.Fatalf("while down: %v", err)
		}
		s.Up()
		began := time.Now()
		if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("came back only after %v", took)
		}
	})
}
