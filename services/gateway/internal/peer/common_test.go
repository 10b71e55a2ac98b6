package peer

import (
	"errors"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/testkit/grpctest"
)

// endless is a process whose metrics have no end.
type endless struct {
	commonv1.UnimplementedCommonServiceServer
	family *dto.MetricFamily
}

func (e *endless) GetMetrics(_ *commonv1.GetMetricsRequest, stream grpc.ServerStreamingServer[commonv1.GetMetricsResponse]) error {
	for {
		if err := stream.Send(&commonv1.GetMetricsResponse{Families: []*dto.MetricFamily{e.family}}); err != nil {
			return err
		}
	}
}

// TestOfAProcessThatWasTakenOverMetricsWithoutEndAreNotHeld: whoever scrapes has all of them
// put together.
func TestOfAProcessThatWasTakenOverMetricsWithoutEndAreNotHeld(t *testing.T) {
	for name, length := range map[string]int{"many": 1 << 20, "large": 2 * mostOfMetrics} {
		help := strings.Repeat("x", length)
		server := grpctest.New(func(s *grpc.Server) {
			commonv1.RegisterCommonServiceServer(s, &endless{family: &dto.MetricFamily{Help: &help}})
		}, grpc.MaxSendMsgSize(rpc.MaxMessageBytes))
		defer server.Close()
		conn, err := server.Dial(rpc.ClientOptions()...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		families, err := NewCommon(conn).Families("")(t.Context())
		if !errors.Is(err, rpcerr.ErrExhausted) || len(families) > 0 {
			t.Errorf("%s: %d families, %v", name, len(families), err)
		}
	}
}
