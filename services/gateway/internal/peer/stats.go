package peer

import (
	"context"

	"google.golang.org/grpc"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
)

// Stats serves what is measured, as metrics. See NewStats.
type Stats struct {
	client statsv1.StatsServiceClient
}

// NewStats returns a client over a connection to stats' socket.
func NewStats(conn grpc.ClientConnInterface) *Stats {
	return &Stats{client: statsv1.NewStatsServiceClient(conn)}
}

// CAdvisor opens /metrics/cadvisor.
func (s *Stats) CAdvisor(ctx context.Context, accept string) (func() (string, []byte, error), error) {
	return s.text(ctx, statsv1.MetricsDocument_METRICS_DOCUMENT_CADVISOR, accept)
}

// Resource opens /metrics/resource.
func (s *Stats) Resource(ctx context.Context, accept string) (func() (string, []byte, error), error) {
	return s.text(ctx, statsv1.MetricsDocument_METRICS_DOCUMENT_RESOURCE, accept)
}

func (s *Stats) text(ctx context.Context, document statsv1.MetricsDocument, accept string) (func() (string, []byte, error), error) {
	stream, err := s.client.GetMetricsText(ctx, &statsv1.GetMetricsTextRequest{Document: document, Accept: accept})
	if err != nil {
		return nil, err
	}
	return func() (string, []byte, error) {
		res, err := stream.Recv()
		return res.GetContentType(), res.GetData(), err
	}, nil
}
