package peer

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/services/gateway/internal/access"
	"github.com/polylet/polylet/services/gateway/internal/nodelog"
)

// Nodestatus serves the node's logs and asks the apiserver. See NewNodestatus.
type Nodestatus struct {
	client nodestatusv1.NodeStatusServiceClient
}

var (
	_ nodelog.Node    = (*Nodestatus)(nil)
	_ access.Reviewer = (*Nodestatus)(nil)
)

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

// ReviewToken implements access.Reviewer.
func (n *Nodestatus) ReviewToken(ctx context.Context, question *authnv1.TokenReview) (*authnv1.TokenReview, *metav1.Status, error) {
	raw, err := question.Marshal()
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a TokenReview: %w", err)
	}
	res, err := n.client.ReviewToken(ctx, &nodestatusv1.ReviewTokenRequest{TokenReview: raw})
	if err != nil {
		return nil, nil, err
	}
	answer := &authnv1.TokenReview{}
	refusal, err := decode(res.GetRefusal(), res.GetTokenReview(), answer)
	return answer, refusal, err
}

// ReviewAccess implements access.Reviewer.
func (n *Nodestatus) ReviewAccess(ctx context.Context, question *authzv1.SubjectAccessReview) (*authzv1.SubjectAccessReview, *metav1.Status, error) {
	raw, err := question.Marshal()
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a SubjectAccessReview: %w", err)
	}
	res, err := n.client.ReviewAccess(ctx, &nodestatusv1.ReviewAccessRequest{SubjectAccessReview: raw})
	if err != nil {
		return nil, nil, err
	}
	answer := &authzv1.SubjectAccessReview{}
	refusal, err := decode(res.GetRefusal(), res.GetSubjectAccessReview(), answer)
	return answer, refusal, err
}

// decode reads a refusal, or else the review into answer. Neither is an error,
// or an answer that says nothing could be taken for one.
func decode(refused, review []byte, answer interface{ Unmarshal([]byte) error }) (*metav1.Status, error) {
	switch {
	case len(refused) > 0:
		refusal := &metav1.Status{}
		if err := refusal.Unmarshal(refused); err != nil {
			return nil, fmt.Errorf("decoding the apiserver's refusal of a review: %w", err)
		}
		return refusal, nil
	case len(review) == 0:
		return nil, fmt.Errorf("nodestatus answered a review with nothing")
	}
	if err := answer.Unmarshal(review); err != nil {
		return nil, fmt.Errorf("decoding a review: %w", err)
	}
	return nil, nil
}
