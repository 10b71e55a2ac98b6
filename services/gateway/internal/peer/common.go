package peer

import (
	"context"
	"errors"
	"fmt"
	"io"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/gateway/internal/debug"
)

var _ debug.Process = (*Common)(nil)

// Common is what every process answers. See NewCommon.
type Common struct {
	client commonv1.CommonServiceClient
}

// NewCommon returns a client over a connection to a process's socket.
func NewCommon(conn grpc.ClientConnInterface) *Common {
	return &Common{client: commonv1.NewCommonServiceClient(conn)}
}

// mostOfMetrics is how much the families of one process may be, encoded, in bytes: many
// times what a full node has. A process that was taken over would end this one with more.
const mostOfMetrics = 16 << 20

// Families returns what gets the families of one registry; "" is the main one.
func (c *Common) Families(registry string) func(ctx context.Context) ([]*dto.MetricFamily, error) {
	return func(ctx context.Context) ([]*dto.MetricFamily, error) {
		ctx, cancel := context.WithCancel(ctx) // what is too much is not sent on
		defer cancel()
		stream, err := c.client.GetMetrics(ctx, &commonv1.GetMetricsRequest{Registry: registry}, grpc.MaxCallRecvMsgSize(mostOfMetrics))
		if err != nil {
			return nil, err
		}
		var families []*dto.MetricFamily
		size := 0
		for {
			res, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return families, nil
			}
			if err != nil {
				return nil, err
			}
			if size += proto.Size(res); size > mostOfMetrics {
				return nil, fmt.Errorf("%w: its metrics are more than %d MiB", rpcerr.ErrExhausted, mostOfMetrics>>20)
			}
			families = append(families, res.GetFamilies()...)
		}
	}
}

// Check returns a check of the process's own by name. One that the process does
// not have passes, and so does any of a process of the release before, which
// had none.
func (c *Common) Check(name string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		res, err := c.client.CheckHealth(ctx, &commonv1.CheckHealthRequest{Names: []string{name}})
		if errors.Is(err, rpcerr.ErrUnimplemented) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, check := range res.GetChecks() {
			if !check.GetHealthy() {
				return fmt.Errorf("%s: %s", check.GetName(), check.GetMessage())
			}
		}
		return nil
	}
}

// Answers fails when the process does not answer.
func (c *Common) Answers(ctx context.Context) error {
	_, err := c.client.GetInfo(ctx, &commonv1.GetInfoRequest{})
	return err
}

// Profile implements debug.Process.
func (c *Common) Profile(ctx context.Context, p debug.Profile) (func() (string, []byte, error), error) {
	stream, err := c.client.GetProfile(ctx, &commonv1.GetProfileRequest{
		Name: p.Name, Seconds: p.Seconds, Debug: p.Debug, Gc: p.GC, Symbols: p.Symbols,
	})
	if err != nil {
		return nil, err
	}
	return func() (string, []byte, error) {
		res, err := stream.Recv()
		return res.GetContentType(), res.GetData(), err
	}, nil
}

// SetVerbosity implements debug.Process.
func (c *Common) SetVerbosity(ctx context.Context, level int32) error {
	_, err := c.client.SetLogLevel(ctx, &commonv1.SetLogLevelRequest{Verbosity: level})
	return err
}
