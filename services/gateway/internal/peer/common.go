package peer

import (
	"context"
	"errors"
	"io"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
)

// Common is what every process answers. See NewCommon.
type Common struct {
	client commonv1.CommonServiceClient
}

// NewCommon returns a client over a connection to a process's socket.
func NewCommon(conn grpc.ClientConnInterface) *Common {
	return &Common{client: commonv1.NewCommonServiceClient(conn)}
}

// Families returns what gets the families of one registry; "" is the main one.
func (c *Common) Families(registry string) func(ctx context.Context) ([]*dto.MetricFamily, error) {
	return func(ctx context.Context) ([]*dto.MetricFamily, error) {
		stream, err := c.client.GetMetrics(ctx, &commonv1.GetMetricsRequest{Registry: registry})
		if err != nil {
			return nil, err
		}
		var families []*dto.MetricFamily
		for {
			res, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return families, nil
			}
			if err != nil {
				return nil, err
			}
			families = append(families, res.GetFamilies()...)
		}
	}
}
