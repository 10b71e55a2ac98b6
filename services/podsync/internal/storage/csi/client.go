package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/services/podsync/internal/storage/growth"
)

// mostOfAnAnswer is how much of a driver's answer, and of its error, is read, in bytes.
const mostOfAnAnswer = 64 << 10

// Conn is a connection with a driver.
type Conn interface {
	grpc.ClientConnInterface
	Close() error
}

// client asks one driver.
type client struct {
	conn  Conn
	node  csi.NodeClient
	asked chan struct{} // places for questions about volumes
}

// call is one of a driver that has ended.
type call struct {
	method, code string
	// exhausted: the driver lacks what it takes.
	exhausted bool
	took      time.Duration
}

// newClient returns a client of the driver at the other end. called is told of each call
// that has ended.
func newClient(conn Conn, called func(context.Context, call)) *client {
	return &client{conn, csi.NewNodeClient(counted{conn, called}), make(chan struct{}, mostAsked)}
}

// counted tells of each call that has ended.
type counted struct {
	Conn
	called func(context.Context, call)
}

// Invoke implements grpc.ClientConnInterface.
func (c counted) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) error {
	began := time.Now()
	err := c.Conn.Invoke(ctx, method, req, reply, opts...)
	code := status.Code(err)
	c.called(ctx, call{method, named(code), code == codes.ResourceExhausted, time.Since(began)})
	return err
}

// named is a code's name. A driver may send any number, and each would be a series.
func named(code codes.Code) string {
	if code > codes.Unauthenticated {
		return codes.Unknown.String()
	}
	return code.String()
}

// dial returns a connection with the driver at a socket; it connects when it is used.
func dial(socket string) (Conn, error) {
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

func (c *client) close() { _ = c.conn.Close() }

// info asks who the driver takes this node for.
func (c *client) info(ctx context.Context) (Info, error) {
	answer, err := c.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	return Info{
		NodeID: answer.GetNodeId(), MaxVolumes: answer.GetMaxVolumesPerNode(), Topology: answer.GetAccessibleTopology().GetSegments(),
	}, err
}

// abilities are what a driver can do on a node.
type abilities map[csi.NodeServiceCapability_RPC_Type]bool

func (c *client) abilities(ctx context.Context) (abilities, error) {
	answer, err := c.node.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	can := abilities{}
	for _, one := range answer.GetCapabilities() {
		can[one.GetRpc().GetType()] = true
	}
	return can, err
}

// publication is how a volume is published.
type publication struct {
	target string
	// staging is where it is staged; empty for a driver that does not stage.
	staging         string
	context, secret map[string]string
	attachment      map[string]string // what its attachment says
	group           *int64            // nil when it is not the driver's to give the files to it
	can             abilities
}

func (c *client) publish(ctx context.Context, w *wanted, p *publication) error {
	_, err := c.node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: w.data.VolumeHandle, TargetPath: p.target, StagingTargetPath: p.staging, Readonly: w.readOnly,
		PublishContext: p.attachment, VolumeContext: p.context, Secrets: p.secret,
		VolumeCapability: w.capability(p.can, p.group),
	})
	return err
}

func (c *client) unpublish(ctx context.Context, handle, target string) error {
	_, err := c.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: target})
	return err
}

// final says whether an operation that failed is over: after the other errors it may go
// on, or a previous one may, and the volume may be there.
func final(err error) bool {
	said, ok := status.FromError(err)
	if !ok {
		return false
	}
	switch said.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

// exhausted says whether the code that an attachment's error has, if it has one, says that
// the driver lacks what it takes.
func exhausted(code *int32) bool {
	return code != nil && codes.Code(*code) == codes.ResourceExhausted //nolint:gosec // A code is small.
}

// asExpansion says what an error of a driver means for a volume that was to be grown.
// Source: https://github.com/container-storage-interface/spec/blob/master/spec.md#nodeexpandvolume-errors
func asExpansion(err error) error {
	if err == nil {
		return nil
	}
	failed := fmt.Errorf("Expander.NodeExpand failed to expand the volume : %w", err) //nolint:staticcheck // The kubelet's words.
	switch code := status.Code(err); {
	case code == codes.FailedPrecondition:
		return &growth.Error{Kind: growth.InUse, Err: failed}
	case code == codes.InvalidArgument, code == codes.OutOfRange, code == codes.NotFound:
		return &growth.Error{Kind: growth.Infeasible, Err: fmt.Errorf("Expander.NodeExpand failed to expand the volume %w", err)} //nolint:staticcheck // The kubelet's words.
	case !final(err), errors.Is(err, context.Canceled):
		return &growth.Error{Kind: growth.Uncertain, Err: failed}
	}
	return failed
}
