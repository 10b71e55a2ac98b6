package peer

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/services/gateway/internal/nodelog"
)

// Nodestatus serves the node's logs. See NewNodestatus.
type Nodestatus struct {
	client nodestatusv1.NodeStatusServiceClient
}

var _ nodelog.Node = (*Nodestatus)(nil)

// NewNodestatus returns a client over a connection to nodestatus' socket.
func NewNodestatus(conn grpc.ClientConnInterface) *Nodestatus {
	return &Nodestatus{client: nodestatusv1.NewNodeStatusServiceClient(conn)}
}

// Stat implements nodelog.Node.
func (n *Nodestatus) Stat(ctx context.Context, path string) (nodelog.Entry, []nodelog.Entry, error) {
	res, err := n.client.StatNodeLog(ctx, &nodestatusv1.StatNodeLogRequest{Path: path})
	if err != nil {
		return nodelog.Entry{}, nil, err
	}
	entries := make([]nodelog.Entry, len(res.GetEntries()))
	for i, e := range res.GetEntries() {
		entries[i] = logEntry(e)
	}
	return logEntry(res.GetFile()), entries, nil
}

func logEntry(e *nodestatusv1.NodeLogFile) nodelog.Entry {
	return nodelog.Entry{Name: e.GetName(), Size: e.GetSizeBytes(), Modified: e.GetModifiedTime().AsTime(), Directory: e.GetDirectory()}
}

// Read implements nodelog.Node.
func (n *Nodestatus) Read(ctx context.Context, path string, offset int64) (func() ([]byte, error), error) {
	stream, err := n.client.ReadNodeLog(ctx, &nodestatusv1.ReadNodeLogRequest{Path: path, OffsetBytes: offset})
	if err != nil {
		return nil, err
	}
	return func() ([]byte, error) {
		res, err := stream.Recv()
		return res.GetData(), err
	}, nil
}

// Query implements nodelog.Node.
func (n *Nodestatus) Query(ctx context.Context, q *nodelog.Query) (func() ([]byte, error), error) {
	req := &nodestatusv1.QueryNodeLogsRequest{Services: q.Services, TailLines: q.TailLines, Boot: q.Boot, Pattern: q.Pattern}
	if q.Since != nil {
		req.SinceTime = timestamppb.New(*q.Since)
	}
	if q.Until != nil {
		req.UntilTime = timestamppb.New(*q.Until)
	}
	stream, err := n.client.QueryNodeLogs(ctx, req)
	if err != nil {
		return nil, err
	}
	return func() ([]byte, error) {
		res, err := stream.Recv()
		return res.GetData(), err
	}, nil
}
